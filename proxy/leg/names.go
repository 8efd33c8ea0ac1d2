package leg

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
)

// respell gives the headers of an answer whose names begin with prefix (in canonical form) the names that the upstream gave them. Clients of
// S3 take what follows x-amz-meta- for a name of their own, in which case matters. names are the lines of the head that was read, or nil:
// then the names are written small, as S3 does.
func respell(h http.Header, prefix string, names []string) {
	for name, values := range h {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		own := strings.ToLower(name)
		for _, n := range names {
			if http.CanonicalHeaderKey(n) == name {
				own = n
				break
			}
		}
		if own != name {
			delete(h, name)
			h[own] = values
		}
	}
}

// peekNames returns the names in the head that r is about to give, as they are spelled; nil if it does not fit into the buffer of r. It waits
// until the head is there, as reading it would.
func peekNames(r *bufio.Reader, prefix string) []string {
	for n := 1; ; {
		head, err := r.Peek(n)
		if err != nil && len(head) < n {
			return nil // reading will say what is wrong
		}
		head, _ = r.Peek(r.Buffered())
		if end := headEnd(head); end >= 0 {
			return headNames(head[:end], prefix)
		}
		if n = len(head) + 1; n > r.Size() {
			return nil
		}
	}
}

// headEnd returns where the empty line begins that ends a head, or -1.
func headEnd(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return -1
		}
		from += i + 1
		if rest := bytes.TrimPrefix(b[from:], []byte("\r")); len(rest) > 0 && rest[0] == '\n' {
			return from
		}
	}
}

func headNames(head []byte, prefix string) (names []string) {
	for line := range bytes.Lines(head) {
		name, _, found := bytes.Cut(line, []byte(":"))
		if found && len(name) >= len(prefix) && strings.EqualFold(string(name[:len(prefix)]), prefix) {
			names = append(names, string(name))
		}
	}
	return names
}

// LowerNames writes the names that begin with prefix small, where the upstream's own spelling is not known.
func LowerNames(h http.Header, prefix string) { respell(h, prefix, nil) }
