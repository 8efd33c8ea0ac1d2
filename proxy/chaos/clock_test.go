package chaos_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Go program cannot be given another clock from outside (libfaketime does not move it), so jumps of the wall clock are not played here.
// Instead: nothing in these packages decides by it. Each use of a time that may be more than a span on the monotonic clock is listed here with
// its purpose; whoever adds one says what it is for.
var clockUses = map[string]string{
	"proxy serve time.Now":                 "span: how long a request took, for the log",
	"proxy NewCA time.Now":                 "in a certificate, which others compare with their clocks",
	"proxy newLeaves time.Now":             "the same",
	"proxy Shutdown time.Now":              "a deadline that has passed",
	"proxy begin time.Now":                 "deadline of a connection",
	"proxy armLocked time.Now":             "deadline of a connection",
	"proxy bounded time.Now":               "deadline of a connection",
	"proxy boundRest time.Now":             "deadline of a connection",
	"proxy farewell time.Now":              "deadline of a connection",
	"proxy current time.Now":               "when files were looked at, on the monotonic clock",
	"proxy newNewcomers time.Now":          "what buckets are filled by, on the monotonic clock",
	"proxy read time.Now":                  "span: how long the client was waited for",
	"proxy readDeadline time.Now":          "deadline of a connection, kept on the monotonic clock by the runtime",
	"proxy writeDeadline time.Now":         "deadline of a connection",
	"proxy enforce time.Now":               "span: a metric",
	"proxy forward time.Now":               "span: a metric",
	"proxy/gate InDoubt time.Now":          "end of a hold, compared with time.Until; the hold itself is a timer",
	"proxy/gate unprovenLocked time.Now":   "stored with the mark, for people",
	"proxy/gate await time.Now":            "when a wait is looked at again, compared with time.Until",
	"proxy/gate New time.Now":              "end of the recovery, compared with time.Until; the recovery itself is a timer",
	"proxy/gate Enter time.Now":            "deadline of a wait, compared with time.Until",
	"proxy/admin MarkOf UTC":               "shown to people",
	"proxy/admin Mark time.Now":            "stored with the mark, for people",
	"proxy/hold New time.Now":              "what holds are counted from, with time.Since",
	"proxy/lease holdLocked time.Now":      "end of a lease, compared with time.Until; the lease itself is a timer",
	"proxy/lease renew time.Now":           "the same",
	"proxy/lease holderLocked time.Now":    "compared with the end of a lease, on the monotonic clock",
	"proxy/lease beginExpire time.Now":     "the same",
	"proxy/lease raise time.Now":           "stored with the mark, for people",
	"proxy/lease decode time.Now":          "deadline of a connection",
	"proxy/leg answered time.Now":          "deadline of a connection",
	"proxy/leg put time.Now":               "when a connection became idle, compared with time.Since",
	"proxy/leg progress time.Now":          "deadline of a connection",
	"proxy/leg package time.Now":           "what spans are measured from, with time.Since",
	"proxy/leg drained time.Unix":          "a deadline that has passed",
	"proxy New time.Now":                   "how old the note of a multipart upload is; a jump ahead loses it, and the next step is refused for want of a token",
	"proxy remember UTC":                   "the same",
	"proxy parseUpload time.Parse":         "the same",
	"proxy root Local":                     "the local part of an XML name",
	"proxy uploadID Local":                 "the local part of an XML name",
	"proxy Read time.Now":                  "when the client was given a piece of an answer, compared with time.Since",
	"tokenstore normalise UnixMilli":       "a mark's time as it is stored, for people",
	"tokenstore normalise UTC":             "a mark's time as it is stored, for people",
	"tokenstore encodeMark UnixMilli":      "a mark's time as it is stored, for people",
	"tokenstore decodeMark UTC":            "a mark's time as it is stored, for people",
	"tokenstore check time.Now":            "when the volume was looked at, compared with time.Since",
	"tokenstore normalise time.UnixMilli":  "a mark's time as it is stored, for people",
	"tokenstore decodeMark time.UnixMilli": "a mark's time as it is stored, for people",
}

// wallClock are the functions and methods that make or show a wall clock time, or take the monotonic part out of one.
var wallClock = map[string]bool{
	"time.Now": true, "time.Unix": true, "time.UnixMilli": true, "time.UnixMicro": true, "time.Parse": true, "time.Date": true,
	"Unix": true, "UnixNano": true, "UnixMilli": true, "UnixMicro": true, "UTC": true, "Local": true, "MarshalBinary": true, "AddDate": true,
}

func TestNothingIsDecidedByTheWallClock(t *testing.T) {
	found := map[string]string{}
	for _, dir := range []string{"proxy", "proxy/admin", "proxy/gate", "proxy/hold", "proxy/lease", "proxy/leg", "tokenstore", "tokenstore/fencing"} {
		names, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", dir, names, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				for use, at := range wallClockUses(decl) {
					found[dir+" "+use] = fmt.Sprint(files.Position(at))
				}
			}
		}
	}
	for _, use := range slices.Sorted(maps.Keys(found)) {
		if clockUses[use] == "" {
			t.Errorf("%s: %q is not listed in clockUses: say what it is for, or use a span on the monotonic clock", found[use], use)
		}
	}
	for _, use := range slices.Sorted(maps.Keys(clockUses)) {
		if found[use] == "" {
			t.Errorf("clockUses lists %q, and it is gone", use)
		}
	}
}

// wallClockUses returns the uses in a declaration, each as "function name".
func wallClockUses(decl ast.Decl) map[string]token.Pos {
	where := "package"
	if f, ok := decl.(*ast.FuncDecl); ok {
		where = f.Name.Name
	}
	uses := map[string]token.Pos{}
	ast.Inspect(decl, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := sel.Sel.Name
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
			name = "time." + name
		}
		if wallClock[name] {
			uses[where+" "+name] = sel.Pos()
		}
		return true
	})
	return uses
}
