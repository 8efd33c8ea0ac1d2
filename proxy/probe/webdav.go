package probe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// destinations tries COPY and MOVE, and the spellings of Destination if the store does the former.
func (r *run) destinations(ctx context.Context, e *evidence) error {
	if e.s3 || e.couch {
		r.check("copy", "COPY onto an object", "-", untried)
		return nil
	}
	dir, _ := r.dirAndName("x")
	whole := func(dir, name string) string { return r.scheme + "://" + r.host + dir + "/" + name }
	for _, d := range []struct {
		id, shown, method string
		spell             func(dir, name string) string
	}{
		{"destination", "COPY, Destination: http://(host)/d/f.txt", "COPY", whole},
		{"destination-path", "COPY, Destination: /d/f.txt", "COPY", func(dir, name string) string { return dir + "/" + name }},
		{"destination-escape", "COPY, Destination: …/d/f.tx%74", "COPY", func(dir, name string) string { return whole(dir, encodeLast(name, "%")) }},
		{"destination-slash", "COPY, Destination: …/d%2Ff.txt", "COPY", func(dir, name string) string { return r.scheme + "://" + r.host + dir + "%2F" + name }},
		{"destination-dot", "COPY, Destination: …/d/./f.txt", "COPY", func(dir, name string) string { return whole(dir, "./"+name) }},
		{"destination-foreign", "COPY, Destination: http://(another)/d/f.txt", "COPY", func(dir, name string) string { return r.scheme + "://" + foreignHost + dir + "/" + name }},
		{"destination-move", "MOVE, Destination: http://(host)/d/f.txt", "MOVE", whole},
	} {
		to, text, ok, err := r.planted(ctx, d.id, d.shown)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		name := to.target[len(dir)+1:]
		from, b := ref{target: r.path(r.fresh())}, r.text("B")
		if ok, _, err := r.plant(ctx, from, b); err != nil || !ok {
			if err != nil {
				return err
			}
			continue
		}
		r.made = append(r.made, ref{target: originForm(d.spell(dir, name))})
		got, err := r.write(ctx, d.method, from, "", field{"Destination", d.spell(dir, name)}, field{"Overwrite", "T"})
		if err != nil {
			return err
		}
		now, err := r.after(ctx, to)
		for end := time.Now().Add(r.cache); err == nil && got.ok() && now.text == text && time.Now().Before(end); {
			if err = sleep(ctx, 5*r.pause()); err == nil {
				now, err = r.get(ctx, to)
			}
		}
		if err != nil {
			return err
		}
		if d.id == "destination" {
			verdict := unchanged
			if now.text == b {
				verdict = replaced
			}
			r.check("copy", "COPY onto an object", says(got), verdict)
			if now.text != b {
				return nil // no WebDAV store
			}
			r.report.copies = true
		}
		r.report.Rows = append(r.report.Rows, Row{ID: d.id, Spelling: d.shown, Says: says(got), Same: sighting{a: text, b: b, status: got.status, plain: now}.verdict()})
	}
	return nil
}

const lockBody = `<?xml version="1.0" encoding="utf-8"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype><D:owner>fenceproxy probe</D:owner></D:lockinfo>`

// lock locks a path that has no object (RFC 4918 section 7.3).
func (r *run) lock(ctx context.Context, e *evidence) error {
	const id, shown = "lock-unmapped", "LOCK where nothing is"
	if e.s3 || e.couch {
		r.check(id, shown, "-", untried)
		return nil
	}
	at := ref{target: r.path(r.fresh())}
	got, err := r.write(ctx, "LOCK", at, lockBody, field{"Depth", "0"}, field{"Timeout", "Second-30"}, field{"Content-Type", "application/xml"})
	if err != nil {
		return err
	}
	now, err := r.after(ctx, at)
	if err != nil {
		return err
	}
	if token := got.header.Get("Lock-Token"); token != "" {
		if _, err := r.ask(ctx, request{method: "UNLOCK", target: at.target, header: []field{{"Lock-Token", token}}}); err != nil {
			return err
		}
	}
	verdict := unchanged
	if now.there {
		verdict = created
	}
	r.check(id, shown, says(got), verdict)
	return nil
}

// folder deletes a folder in the spelling without a slash at its end.
func (r *run) folder(ctx context.Context, _ *evidence) error {
	const id, shown = "delete-folder", "DELETE of a folder, no slash"
	if r.couch {
		r.check(id, shown, "-", untried)
		return nil
	}
	dir := r.path(strings.TrimSuffix(r.fresh(), ".txt"))
	if r.folders {
		if _, err := r.ask(ctx, request{method: "MKCOL", target: dir + "/"}); err != nil {
			return err
		}
	}
	at := ref{target: dir + "/" + r.fresh()}
	ok, status, err := r.plant(ctx, at, r.text("A"))
	if err != nil {
		return err
	}
	if !ok {
		r.check(id, shown, fmt.Sprintf("%d to the plain PUT", status), unclear)
		return nil
	}
	got, err := r.write(ctx, http.MethodDelete, ref{target: dir}, "")
	if err != nil {
		return err
	}
	return r.conclude(ctx, id, shown, at, got, folderVerdict)
}

func folderVerdict(now content) string {
	switch {
	case !now.clear:
		return unclear
	case !now.there:
		return emptied
	}
	return kept
}
