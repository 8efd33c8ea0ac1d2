package probe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a probe found.
type Report struct {
	URL      string    `json:"url"`
	Scratch  string    `json:"scratch"`
	Dialect  string    `json:"dialect"`
	Evidence []string  `json:"evidence"` // why this dialect
	Rows     []Row     `json:"spellings"`
	Checks   []Check   `json:"checks"`
	Warnings []string  `json:"warnings"`
	Settings []Setting `json:"settings"` // what differs from the dialect's defaults
	YAML     string    `json:"yaml"`     // the lines to paste
	Left     []string  `json:"left"`     // what could not be removed
	Kept     bool      `json:"kept"`     // the scratch prefix was left in the store on request

	evidence evidence
	late     time.Duration
	async    bool // PUT is answered with 202
	copies   bool // COPY works
}

// Setting is one key to set.
type Setting struct {
	Key   string `json:"key"` // "case" for identity.case, "settle"
	Value string `json:"value"`
	Why   string `json:"why"`
}

// Row returns a row by its ID.
func (r *Report) Row(id string) Row { return *r.row(id) }

func (r *Report) row(id string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.ID == id })
	if i < 0 {
		return &Row{ID: id, Same: Untried}
	}
	return &r.Rows[i]
}

// Check returns a check by its ID.
func (r *Report) Check(id string) Check {
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.ID == id })
	if i < 0 {
		return Check{ID: id, Verdict: untried}
	}
	return r.Checks[i]
}

func (r *Report) same(ids ...string) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return r.Row(id).Same == Same })
}

// WriteTo prints the report for people: the tables, the warnings, the lines to paste.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (the plain spelling is /d/f.txt)\n\n", r.URL)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SPELLING\tSTORE SAYS\tSAME OBJECT\tOPTION")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", printable(row.Spelling), printable(row.Says), row.Same, row.Advice)
	}
	if err := t.Flush(); err != nil {
		return 0, err
	}
	b.WriteByte('\n')
	fmt.Fprintln(t, "CHECK\tSTORE SAYS\tVERDICT")
	for _, c := range r.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Shown, printable(c.Says), c.Verdict)
	}
	if err := t.Flush(); err != nil {
		return 0, err
	}
	if len(r.Warnings) > 0 {
		b.WriteByte('\n')
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", text)
	}
	b.WriteByte('\n')
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "# %s\n", printable(e))
	}
	b.WriteString(r.YAML)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// printable keeps what a store sends from steering a terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return '?'
		}
		return c
	}, s)
}
