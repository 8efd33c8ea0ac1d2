package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ref is where a request goes: its target, and another Host than that of the URL if one is set.
type ref struct{ target, host string }

// run is the state of one probe.
type run struct {
	*client
	scheme  string
	base    string // raw path of the URL, without a slash at its end
	scratch string // base + "/fenceproxy-probe-…"
	couch   bool
	folders bool // MKCOL was needed
	report  *Report

	late  time.Duration // how long after its answer a write may show; 0 if at once
	names int
	made  []ref        // everything that may have been written, in order
	taken map[ref]bool // those of them that the store said it wrote
	lost  []ref        // writes without an answer
	mute  int          // requests in a row without an answer
	later []recheck
	cache time.Duration // how long a cache may hide a write
}

// recheck is a second look at an object, when caches must have let go of what they had: lighttpd serves an overwritten file for up to a
// second more.
type recheck struct {
	at   ref
	from time.Time
	look func(now content)
}

const cacheTime = 1500 * time.Millisecond

func (r *run) recheck(at ref, look func(content)) {
	r.later = append(r.later, recheck{at, time.Now().Add(r.cache), look})
}

func (r *run) recheckAll(ctx context.Context, _ *evidence) error {
	for _, l := range r.later {
		if err := sleep(ctx, time.Until(l.from)); err != nil {
			return err
		}
		now, err := r.get(ctx, l.at)
		if err != nil {
			return err
		}
		l.look(now)
	}
	return nil
}

// path is a raw path below the scratch prefix.
func (r *run) path(name string) string {
	if r.couch {
		return r.scratch + "-" + name
	}
	return r.scratch + "/d/" + name
}

// dirAndName splits a path below the prefix as spellings want it.
func (r *run) dirAndName(name string) (string, string) {
	p := r.path(name)
	i := strings.LastIndexByte(p, '/')
	return p[:i], p[i+1:]
}

// fresh is a new name.
func (r *run) fresh() string {
	r.names++
	return fmt.Sprintf("f%d.txt", r.names)
}

// text is content that was never written before.
func (r *run) text(of string) string {
	r.names++
	return fmt.Sprintf("fenceproxy probe %s %d %s", of, r.names, r.scratch[len(r.scratch)-8:])
}

// ask sends a request that cannot write.
func (r *run) ask(ctx context.Context, q request) (reply, error) {
	got, err := r.do(ctx, q)
	return got, r.counted(ctx, q, err)
}

// write sends a request that may write to at.
func (r *run) write(ctx context.Context, method string, at ref, body string, header ...field) (reply, error) {
	r.made = append(r.made, at)
	q := request{method: method, target: at.target, host: at.host, header: header, body: []byte(body)}
	got, err := r.do(ctx, q)
	switch {
	case err != nil:
		r.lost = append(r.lost, at)
	case got.ok():
		r.taken[at] = true
	}
	return got, r.counted(ctx, q, err)
}

// counted ends the probe when the store does not answer any more; one request without an answer is an answer of its own.
func (r *run) counted(ctx context.Context, q request, err error) error {
	switch {
	case err == nil:
		r.mute = 0
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrTooMany):
		return err
	}
	if r.mute++; r.mute < 4 {
		return nil
	}
	return &SilentError{Method: q.method, Target: q.target, Err: err}
}

// put writes text as an object.
func (r *run) put(ctx context.Context, at ref, text string, header ...field) (reply, error) {
	if !r.couch {
		return r.write(ctx, http.MethodPut, at, text, append(header, field{"Content-Type", "application/octet-stream"})...)
	}
	rev, err := r.revision(ctx, at)
	if err != nil {
		return reply{}, err
	}
	return r.putDocument(ctx, at, text, rev, header...)
}

func (r *run) putDocument(ctx context.Context, at ref, text, rev string, header ...field) (reply, error) {
	doc := map[string]string{"probe": text}
	if rev != "" {
		doc["_rev"] = rev
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return reply{}, err
	}
	return r.write(ctx, http.MethodPut, at, string(body), append(header, field{"Content-Type", "application/json"})...)
}

// revision is the current one of a CouchDB document, or empty.
func (r *run) revision(ctx context.Context, at ref) (string, error) {
	got, err := r.ask(ctx, request{method: http.MethodGet, target: at.target, host: at.host})
	return document(got).Rev, err
}

type couchDocument struct {
	ID    string  `json:"_id"`
	Rev   string  `json:"_rev"`
	Probe *string `json:"probe"`
}

func document(got reply) couchDocument {
	var doc couchDocument
	if !got.ok() || json.Unmarshal(got.body, &doc) != nil {
		return couchDocument{}
	}
	return doc
}

// get reads an object.
func (r *run) get(ctx context.Context, at ref) (content, error) {
	got, err := r.ask(ctx, request{method: http.MethodGet, target: at.target, host: at.host, header: []field{{"Cache-Control", "no-cache"}}})
	if err != nil {
		return content{}, err
	}
	return r.contentOf(got), nil
}

func (r *run) contentOf(got reply) content {
	switch {
	case got.ok() && r.couch:
		if doc := document(got); doc.Probe != nil {
			return content{*doc.Probe, true, true}
		}
		return content{string(got.body), true, true}
	case got.ok():
		return content{string(got.body), true, true}
	case got.status == http.StatusNotFound, got.status == http.StatusGone:
		return content{clear: true}
	}
	return content{}
}

// patience is how long a write may take to show.
func (r *run) patience() time.Duration {
	if r.late == 0 {
		return 0
	}
	return 4*r.late + time.Second
}

// await reads an object until done says that enough was seen, or patience ends.
func (r *run) await(ctx context.Context, at ref, done func(content) bool) (content, error) {
	for end := time.Now().Add(r.patience()); ; {
		got, err := r.get(ctx, at)
		if err != nil || done(got) || !time.Now().Before(end) {
			return got, err
		}
		if err := sleep(ctx, r.pause()); err != nil {
			return got, err
		}
	}
}

const pollPause = 20 * time.Millisecond

// pause is the time between two looks.
func (r *run) pause() time.Duration { return max(pollPause, r.patience()/16) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settled waits until what was written before must have been applied.
func (r *run) settled(ctx context.Context) error {
	if r.late == 0 {
		return nil
	}
	return sleep(ctx, 2*r.late+5*pollPause)
}

// plant writes a new object and makes sure that it is there.
func (r *run) plant(ctx context.Context, at ref, text string) (ok bool, status int, err error) {
	got, err := r.put(ctx, at, text)
	if err != nil || !got.ok() {
		return false, got.status, err
	}
	now, err := r.await(ctx, at, func(c content) bool { return c.text == text })
	return now.text == text, got.status, err
}

// delete removes an object; for a CouchDB document under its revision.
func (r *run) delete(ctx context.Context, at ref) (reply, error) {
	target := at.target
	if r.couch {
		rev, err := r.revision(ctx, at)
		if err != nil {
			return reply{}, err
		}
		sep := "?"
		if strings.Contains(target, "?") {
			sep = "&"
		}
		if rev != "" {
			target += sep + "rev=" + url.QueryEscape(rev)
		}
	}
	return r.ask(ctx, request{method: http.MethodDelete, target: target, host: at.host})
}
