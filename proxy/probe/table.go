package probe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Row is a spelling and what the store made of it.
type Row struct {
	ID       string  `json:"id"`
	Spelling string  `json:"spelling"`         // for an object /d/f.txt
	Says     string  `json:"store_says"`       // the answer to a write in that spelling
	Same     Verdict `json:"same_object"`      // whether it is the plain spelling's object
	Option   string  `json:"option,omitempty"` // the identity option that it is about
	Advice   string  `json:"advice,omitempty"` // how that option reads it, and what to set

	reads bool // a read in the refused spelling gives the object all the same
}

// spelling tries one spelling on a new object. A row without an ID is none: the host has no other spelling.
func (r *run) spelling(ctx context.Context, s spelling) (Row, error) {
	if s.host != nil && s.host(r.host) == "" {
		return Row{}, nil
	}
	row := Row{ID: s.id, Spelling: s.shown, Option: s.option, Same: Untried, Says: "-"}
	if r.couch && !s.flat {
		return row, nil
	}
	dir, name := r.dirAndName(r.fresh())
	plain, other := s.paths(dir, name)
	at, as := ref{target: plain}, ref{target: other}
	if s.host != nil {
		as.host = s.host(r.host)
	}
	if s.absolute {
		host := as.host
		if host == "" {
			host = r.host
		}
		as.target = r.scheme + "://" + host + other
	}
	seen := sighting{a: r.text("A"), b: r.text("B")}
	ok, status, err := r.plant(ctx, at, seen.a)
	if err != nil {
		return row, err
	}
	if !ok {
		row.Same, row.Says = Unclear, fmt.Sprintf("%d to the plain spelling", status)
		return row, nil
	}
	got, err := r.rewrite(ctx, at, as, seen.b)
	if err != nil {
		return row, err
	}
	seen.status, row.Says = got.status, says(got)
	if seen, err = r.look(ctx, at, as, seen); err != nil {
		return row, err
	}
	row.Same = seen.verdict()
	row.reads = seen.other.text == seen.a
	if loc := got.header.Get("Location"); got.status/100 == 3 && loc != "" {
		row.Says += " to " + strings.ReplaceAll(clip(loc), r.scratch, "")
	}
	switch {
	case row.Same == Refused && row.reads:
		return r.byDelete(ctx, at, as, row)
	case row.Same == Other || row.Same == Unclear:
		r.recheck(at, func(now content) {
			again := seen
			if again.plain = now; again.verdict() == Same {
				r.report.row(s.id).Same = Same
			}
		})
	}
	return row, nil
}

// rewrite writes b in the other spelling. For CouchDB it first does so with the revision of the plain one's document: if both are one
// document, it must name that.
func (r *run) rewrite(ctx context.Context, at, as ref, b string) (reply, error) {
	if !r.couch {
		return r.put(ctx, as, b)
	}
	if doc, found := strings.CutSuffix(as.target, "/b"); found {
		r.made = append(r.made, ref{target: doc}) // an attachment makes its document
	}
	rev, err := r.revision(ctx, at)
	if err != nil {
		return reply{}, err
	}
	got, err := r.putDocument(ctx, as, b, rev)
	if err != nil || got.status != http.StatusConflict {
		return got, err
	}
	return r.put(ctx, as, b)
}

// look reads both spellings, the plain one last, until what was accepted shows.
func (r *run) look(ctx context.Context, at, as ref, seen sighting) (sighting, error) {
	for end := time.Now().Add(r.patience()); ; {
		var err error
		if seen.other, err = r.get(ctx, as); err != nil {
			return seen, err
		}
		if seen.plain, err = r.get(ctx, at); err != nil {
			return seen, err
		}
		if v := seen.verdict(); v == Same || v == Other || !time.Now().Before(end) {
			return seen, nil
		}
		if err := sleep(ctx, r.pause()); err != nil {
			return seen, err
		}
	}
}

// byDelete asks whether a spelling that PUT is refused in, and GET is not, deletes the object: then it is one for writes, too.
func (r *run) byDelete(ctx context.Context, at, as ref, row Row) (Row, error) {
	got, err := r.delete(ctx, as)
	if err != nil {
		return row, err
	}
	if err := r.settled(ctx); err != nil {
		return row, err
	}
	now, err := r.get(ctx, at)
	if err == nil && now.clear && !now.there {
		row.Same = Same
		row.Says += fmt.Sprintf(", but %d to DELETE", got.status)
	}
	return row, err
}
