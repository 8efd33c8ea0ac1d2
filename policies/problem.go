package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake, or one warning, in a configuration.
type Problem struct {
	File         string // empty for a value that came from a flag or the environment
	Line, Column int    // from 1; 0 where there is no place to point at
	Path         string // "policies[2].resource"
	Message      string
	Hint         string // what to do next; may be empty
}

// String is the form for people: "fenceproxy.yaml:12:5: policies[2].resource: message (hint)".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Errors is the error of [Load]: every problem of the file, in the order of its lines.
type Errors struct {
	Problems []Problem
}

// Error is one line a problem.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sortProblems orders by place; what has no line comes last.
func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// suggest returns "did you mean X?" for the name in known that is nearest to got, or "".
func suggest(got string, known []string) string {
	best := Nearest(got, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s?", best)
}

// Nearest returns the name in known that got is probably meant to be, or "". Case, and dashes for underscores, do not matter.
func Nearest(got string, known []string) string {
	best, bestDistance := "", 3
	if len(got) <= 4 {
		bestDistance = 2
	}
	if len(got) > 64 {
		return ""
	}
	got = strings.ReplaceAll(strings.ToLower(got), "-", "_")
	for _, k := range slices.Sorted(slices.Values(known)) {
		d := distance(got, strings.ReplaceAll(strings.ToLower(k), "-", "_"))
		if len(got) >= 5 && strings.HasPrefix(k, got) {
			d = min(d, 2)
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the edits between a and b, a swap of neighbours being one.
func distance(a, b string) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, prev[j]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}
