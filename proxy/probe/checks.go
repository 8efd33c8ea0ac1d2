package probe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Check is a behaviour of the store other than its reading of paths.
type Check struct {
	ID      string `json:"id"`
	Shown   string `json:"check"`
	Says    string `json:"store_says"`
	Verdict string `json:"verdict"`
}

// Verdicts of checks.
const (
	honoured  = "honoured"
	ignored   = "ignored"
	intact    = "the object is intact"
	truncated = "the object is cut or mixed"
	gone      = "the object is gone"
	replaced  = "the target is replaced"
	partly    = "written into the object"
	whole     = "replaces the object"
	unchanged = "no effect"
	created   = "creates an object"
	emptied   = "takes the objects below along"
	kept      = "the objects below stay"
	unclear   = "unclear"
	untried   = "not tried"
)

func (r *run) check(id, shown, says, verdict string) {
	r.report.Checks = append(r.report.Checks, Check{ID: id, Shown: shown, Says: says, Verdict: verdict})
}

// conclude reads an object after a request that was answered with got, and once more at the end of the probe if it was accepted.
func (r *run) conclude(ctx context.Context, id, shown string, at ref, got reply, verdict func(content) string) error {
	now, err := r.after(ctx, at)
	if err != nil {
		return err
	}
	i := len(r.report.Checks)
	r.check(id, shown, says(got), verdict(now))
	if got.ok() {
		r.recheck(at, func(now content) { r.report.Checks[i].Verdict = verdict(now) })
	}
	return nil
}

// planted writes an object for a check; where that fails the check is unclear.
func (r *run) planted(ctx context.Context, id, shown string) (at ref, text string, ok bool, err error) {
	at, text = ref{target: r.path(r.fresh())}, r.text("A")
	ok, status, err := r.plant(ctx, at, text)
	if err == nil && !ok {
		r.check(id, shown, fmt.Sprintf("%d to the plain PUT", status), unclear)
	}
	return at, text, ok, err
}

// after reads an object when what was sent must have been applied.
func (r *run) after(ctx context.Context, at ref) (content, error) {
	if err := r.settled(ctx); err != nil {
		return content{}, err
	}
	return r.get(ctx, at)
}

// conditions tries writes whose condition does not hold.
func (r *run) conditions(ctx context.Context, _ *evidence) error {
	for _, c := range []struct {
		id     string
		header field
	}{
		{"if-none-match", field{"If-None-Match", "*"}},
		{"if-match", field{"If-Match", `"fenceproxy-probe"`}},
	} {
		shown := "PUT with " + c.header.name + ": " + c.header.value
		at, text, ok, err := r.planted(ctx, c.id, shown)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if r.couch { // its condition is the revision: with none, a known document must not be replaced
			shown = "PUT without a revision"
			if c.id == "if-match" {
				shown = "PUT with another revision"
			}
		}
		b := r.text("B")
		var got reply
		switch {
		case r.couch && c.id == "if-match":
			got, err = r.putDocument(ctx, at, b, "1-00000000000000000000000000000000")
		case r.couch:
			got, err = r.putDocument(ctx, at, b, "")
		default:
			got, err = r.put(ctx, at, b, c.header)
		}
		if err != nil {
			return err
		}
		if err := r.conclude(ctx, c.id, shown, at, got, func(now content) string { return conditionVerdict(got.status, now, text, b) }); err != nil {
			return err
		}
	}
	return nil
}

func conditionVerdict(status int, now content, a, b string) string {
	switch {
	case now.text == a && status/100 != 2:
		return honoured
	case now.text == b:
		return ignored
	}
	return unclear
}

// overrides asks for a DELETE in other ways than by the method.
func (r *run) overrides(ctx context.Context, _ *evidence) error {
	for _, o := range []struct {
		id, shown, query string
		header           []field
	}{
		{"x-http-method-override", "POST with X-HTTP-Method-Override: DELETE", "", []field{{"X-HTTP-Method-Override", "DELETE"}}},
		{"x-http-method", "POST with X-HTTP-Method: DELETE", "", []field{{"X-HTTP-Method", "DELETE"}}},
		{"x-method-override", "POST with X-Method-Override: DELETE", "", []field{{"X-Method-Override", "DELETE"}}},
		{"_method", "POST with ?_method=DELETE", "?_method=DELETE", nil},
	} {
		at, _, ok, err := r.planted(ctx, o.id, o.shown)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		target, header := at.target+o.query, o.header
		if r.couch {
			rev, err := r.revision(ctx, at)
			if err != nil {
				return err
			}
			header = append(header, field{"If-Match", rev})
		}
		got, err := r.write(ctx, http.MethodPost, ref{target: target}, "", header...)
		if err != nil {
			return err
		}
		r.located(got)
		if err := r.conclude(ctx, o.id, o.shown, at, got, overrideVerdict); err != nil {
			return err
		}
	}
	return nil
}

func overrideVerdict(now content) string {
	switch {
	case !now.clear:
		return unclear
	case !now.there:
		return honoured
	}
	return ignored
}

// located remembers what a POST says that it made.
func (r *run) located(got reply) {
	loc := got.header.Get("Location")
	if got.status != http.StatusCreated || loc == "" {
		return
	}
	if path := originForm(loc); strings.HasPrefix(path, r.scratch) {
		r.made = append(r.made, ref{target: path})
		return
	}
	r.report.Left = append(r.report.Left, clip(loc)+" (which the store made for a POST to the scratch prefix)")
}

// partial writes two bytes of an object.
func (r *run) partial(ctx context.Context, _ *evidence) error {
	const id, shown = "partial-put", "PUT with Content-Range"
	if r.couch {
		r.check(id, shown, "-", untried)
		return nil
	}
	at, text, ok, err := r.planted(ctx, id, shown)
	if err != nil || !ok {
		return err
	}
	got, err := r.put(ctx, at, "ZZ", field{"Content-Range", fmt.Sprintf("bytes 0-1/%d", len(text))})
	if err != nil {
		return err
	}
	return r.conclude(ctx, id, shown, at, got, func(now content) string { return partialVerdict(now, text) })
}

func partialVerdict(now content, a string) string {
	switch now.text {
	case "ZZ" + a[2:]:
		return partly
	case "ZZ":
		return whole
	case a:
		return unchanged
	}
	return unclear
}
