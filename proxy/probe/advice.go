package probe

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// effect is what a value of an identity option makes of a spelling.
type effect uint8

const (
	refuses effect = iota // the write is rejected
	merges                // both spellings have one key
	splits                // both spellings have a key of their own
)

// effects holds the values of the identity options.
func effects() map[string]map[string]effect {
	return map[string]map[string]effect{
		"dot_segments":   {"reject": refuses, "resolve": merges, "literal": splits},
		"empty_segments": {"reject": refuses, "collapse": merges, "literal": splits},
		"trailing_slash": {"reject": refuses, "same": merges, "distinct": splits},
		"encoded_slash":  {"reject": refuses, "separator": merges, "literal": splits},
		"path_params":    {"reject": refuses, "strip": merges, "literal": splits},
		"case":           {"fold": merges, "sensitive": splits},
		"unicode":        {"reject-non-nfc": refuses, "nfc-key": merges, "as-is": splits},
	}
}

// options are those of identity that the table is about, in the order of the configuration's reference.
func options() []string {
	return []string{"dot_segments", "empty_segments", "trailing_slash", "encoded_slash", "path_params", "case", "unicode"}
}

// merging is the value of an option that gives both spellings one key.
func merging(option string) string {
	for value, e := range effects()[option] {
		if e == merges {
			return value
		}
	}
	return ""
}

// defaults are the identity options that a dialect sets.
func defaults(dialect string) map[string]string {
	d := map[string]string{
		"dot_segments": "reject", "empty_segments": "reject", "trailing_slash": "same", "encoded_slash": "reject",
		"path_params": "literal", "case": "sensitive", "unicode": "as-is",
	}
	switch dialect {
	case "s3":
		d["encoded_slash"], d["trailing_slash"] = "separator", "distinct"
	case "couchdb":
		d["encoded_slash"], d["empty_segments"] = "literal", "collapse"
	case "servlet":
		d["path_params"] = "strip"
	case "windows":
		d["case"] = "fold"
	}
	return d
}

// conclude draws the conclusions from rows and checks.
func (r *Report) conclude() {
	r.guess()
	set := defaults(r.Dialect)
	for _, option := range options() {
		for _, row := range r.Rows {
			if row.Option == option && row.Same == Same && effects()[option][set[option]] == splits {
				set[option] = merging(option)
				r.Settings = append(r.Settings, Setting{option, set[option], "the store takes " + row.Spelling + " for one object"})
				break
			}
		}
	}
	for i := range r.Rows {
		r.Rows[i].Advice = r.advice(&r.Rows[i], set, defaults(r.Dialect))
	}
	if r.late > 0 || r.async {
		r.Settings = append(r.Settings, Setting{"settle", r.settle().String(), "a write shows after its answer"})
	}
	r.warn()
	r.YAML = r.yaml()
}

// settle is twice what was seen, and whole seconds: one measurement is not the longest time.
func (r *Report) settle() time.Duration {
	return max((2*r.late).Truncate(time.Second)+time.Second, 2*time.Second)
}

// guess names the dialect.
func (r *Report) guess() {
	e := &r.evidence
	slashed := r.same("backslash", "encoded-backslash")
	padded := r.same("trailing-dot", "trailing-space")
	switch {
	case e.couch:
		r.Dialect = "couchdb"
	case e.s3:
		r.Dialect = "s3"
	case r.copies, e.dav:
		r.Dialect = "webdav"
		if r.copies {
			e.note("COPY works")
		}
	case r.same("case") && (slashed || padded):
		r.Dialect = "windows"
		e.note("case, and dots, spaces or backslashes, do not matter in names")
	case r.same("params", "folder-params"):
		r.Dialect = "servlet"
		e.note("it cuts ;parameters off")
	default:
		r.Dialect = "http"
		e.note("nothing tells it from a plain HTTP store")
	}
	r.Evidence = e.notes
}

// advice is the last cell of a row: what the configuration makes of this spelling.
func (r *Report) advice(row *Row, set, before map[string]string) string {
	if row.Same == Untried {
		return "-"
	}
	if row.Option != "" {
		value := set[row.Option]
		text := row.Option + ": " + value
		switch e := effects()[row.Option][value]; {
		case row.Same != Same && value != before[row.Option]:
			return text + " (set for another row)"
		case row.Same != Same && e == merges:
			return text + " (shares a mark, which is safe)"
		case row.Same != Same:
			return text
		case value != before[row.Option]:
			return text + "   <- set this"
		case e == refuses:
			return fmt.Sprintf("%s refuses it: keep that (%s would merge)", text, merging(row.Option))
		}
		return text + " merges them"
	}
	if text, ok := fixed()[row.ID]; ok {
		return text
	}
	switch {
	case strings.HasPrefix(row.ID, "destination"):
		if r.Dialect == "webdav" {
			return "dialect: webdav fences both paths"
		}
		return "refused: dialect " + r.Dialect + " does not read Destination"
	case row.Same != Same:
		return "-"
	case r.Dialect == "windows" && strings.HasPrefix(row.ID, "trailing-"):
		return "dialect: windows refuses it"
	}
	return "no option: see the warning"
}

// fixed says what happens to a spelling whatever the options.
func fixed() map[string]string {
	return map[string]string{
		"escape":            "escapes are decoded once: one key",
		"hex-case":          "escapes are decoded once: one key",
		"query":             "the query is no part of the key",
		"backslash":         "always refused",
		"encoded-backslash": "always refused",
		"absolute":          "the host is no part of the key",
		"absolute-foreign":  "always refused",
		"host-foreign":      "the host is no part of the key",
		"host-case":         "the host is no part of the key",
		"host-dot":          "the host is no part of the key",
	}
}

// warn says in sentences what the operator should know.
func (r *Report) warn() {
	add := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	for _, s := range r.Settings {
		if s.Key != "settle" {
			add("%s (set identity.%s: %s)", s.Why, s.Key, s.Value)
		}
	}
	if r.same("double", "double-slash") {
		add("the store decodes escapes twice, so %%2566 is f to it; no option reads paths like that: keep such paths away from the store, in front of the proxy")
	}
	if r.same("plus") {
		add("the store takes + in a path for a space, and no option does: keep one of the two away from the store, in front of the proxy")
	}
	if r.same("trailing-dot", "trailing-space") && r.Dialect != "windows" {
		add("the store drops dots or spaces at the end of a name, as Windows does; only dialect: windows reads them so")
	}
	if row := r.Row("host-foreign"); row.Same == Other {
		add("another Host reaches another object, and both have one mark: name the host in the policies (match.host, or {host} in the resource)")
	}
	var cut []string
	for id, how := range map[string]string{"cut-fin": "ends in order", "cut-reset": "is reset"} {
		if v := r.Check(id).Verdict; v == truncated || v == gone {
			cut = append(cut, how)
		}
	}
	if slices.Sort(cut); len(cut) > 0 {
		add("an upload that breaks off destroys the object (when its connection %s): keep request_body: spool", strings.Join(cut, ", or "))
	}
	var deaf []string
	for _, id := range []string{"if-none-match", "if-match"} {
		if c := r.Check(id); c.Verdict == ignored {
			deaf = append(deaf, strings.TrimPrefix(c.Shown, "PUT with "))
		}
	}
	if len(deaf) > 0 {
		add("the store ignores conditions (%s): clients that rely on them are not protected by it, only by the fence", strings.Join(deaf, "; "))
	}
	for _, c := range r.Checks {
		if strings.Contains(c.ID, "method") && c.Verdict == honoured {
			add("the store deletes on %s; the proxy refuses that unless method_override is honour", c.Shown)
		}
	}
	switch {
	case r.late > 0:
		add("a PUT is answered before it shows (%s later): set settle to the longest time that takes, %s at the least", r.late.Round(10*time.Millisecond), r.settle())
	case r.async:
		add("a PUT is answered with 202, which promises nothing, though it showed at once: set settle to the longest time that it may take")
	}
	if r.copies && r.same("destination-foreign") {
		add("COPY with a Destination on another host overwrites an object here; dialect: webdav refuses that")
	}
	if r.Check("partial-put").Verdict == whole {
		add("a PUT with Content-Range replaces the whole object with the part")
	}
	if r.Check("delete-folder").Verdict == emptied {
		if r.Dialect == "webdav" {
			add("DELETE of a folder deletes what is below, also without a slash at its end: it passes only where no mark lies beneath; clients that need it need collections: subtree")
		} else {
			add("DELETE of a folder deletes what is below, also without a slash at its end, and fences the path of the folder alone: let one resource cover the folder, or leave DELETE of it to no policy")
		}
	}
	if r.Check("lock-unmapped").Verdict == created {
		add("LOCK creates an object where none is: fence it as a write (a policy does, unless its methods leave LOCK out)")
	}
}

// yaml is what to paste.
func (r *Report) yaml() string {
	var identity, more []string
	for _, s := range r.Settings {
		line := s.Key + ": " + s.Value
		if s.Key == "settle" {
			more = append(more, line)
		} else {
			identity = append(identity, line)
		}
	}
	text := "defaults:\n  dialect: " + r.Dialect + "\n"
	if len(identity) > 0 {
		text += "  identity: {" + strings.Join(identity, ", ") + "}\n"
	}
	for _, line := range more {
		text += "  " + line + "\n"
	}
	return text
}
