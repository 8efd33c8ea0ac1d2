package probe

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// uploads breaks uploads off half-way.
func (r *run) uploads(ctx context.Context, _ *evidence) error {
	const length, part = 200_000, 100_000
	for _, u := range []struct {
		id, shown string
		reset     bool
	}{
		{"cut-fin", "upload cut in half, then FIN", false},
		{"cut-reset", "upload cut in half, then RST", true},
	} {
		at, text, ok, err := r.planted(ctx, u.id, u.shown)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		body, kind := strings.Repeat("C", part), "application/octet-stream"
		if r.couch {
			rev, err := r.revision(ctx, at)
			if err != nil {
				return err
			}
			head := `{"_rev":"` + rev + `","probe":"`
			body, kind = head+body[len(head):], "application/json"
		}
		q := request{method: http.MethodPut, target: at.target, header: []field{{"Content-Type", kind}}, body: []byte(body)}
		got, err := r.cut(ctx, q, length, u.reset)
		switch {
		case errors.Is(err, errNoReset):
			r.check(u.id, u.shown, "-", untried)
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrTooMany):
			return err
		}
		says := says(got)
		verdict, err := r.afterCut(ctx, at, text)
		if err != nil {
			return err
		}
		i := len(r.report.Checks)
		r.check(u.id, u.shown, says, verdict)
		if verdict == intact {
			r.recheck(at, func(now content) { r.report.Checks[i].Verdict = cutVerdict(now, text) })
		}
	}
	return nil
}

// afterCut looks several times: the store may notice late.
func (r *run) afterCut(ctx context.Context, at ref, a string) (string, error) {
	verdict := unclear
	for range 5 {
		if err := sleep(ctx, 2*pollPause); err != nil {
			return verdict, err
		}
		now, err := r.after(ctx, at)
		if err != nil {
			return verdict, err
		}
		if verdict = cutVerdict(now, a); verdict != intact && verdict != unclear {
			return verdict, nil
		}
	}
	return verdict, nil
}

func cutVerdict(now content, a string) string {
	switch {
	case now.text == a:
		return intact
	case !now.clear:
		return unclear
	case !now.there:
		return gone
	}
	return truncated
}
