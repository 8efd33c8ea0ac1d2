package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/fenceproxy/fenceproxy/proxy/admin"
	holds "github.com/fenceproxy/fenceproxy/proxy/hold"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// remoteMarks are the marks of a running proxy.
type remoteMarks struct{ *remote }

func (m remoteMarks) list(ctx context.Context, prefix string, each func(admin.Mark) error) error {
	q := url.Values{"prefix": {prefix}}
	for {
		var page admin.Listing
		err := m.call(ctx, http.MethodGet, "/v1/resources?"+q.Encode(), nil, func(r io.Reader) error { return json.NewDecoder(r).Decode(&page) })
		if err != nil {
			return err
		}
		for _, one := range page.Resources {
			if err := each(one); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		q.Set("after", page.Next)
	}
}

func resourcePath(r fencing.Resource) string { return "/v1/resources/" + url.PathEscape(string(r)) }

func (m remoteMarks) get(ctx context.Context, r fencing.Resource) (out admin.Mark, err error) {
	err = m.call(ctx, http.MethodGet, resourcePath(r), nil, func(b io.Reader) error { return json.NewDecoder(b).Decode(&out) })
	return out, err
}

func (m remoteMarks) set(ctx context.Context, r fencing.Resource, c admin.Change) (out admin.Changed, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return out, err
	}
	err = m.call(ctx, http.MethodPut, resourcePath(r), bytes.NewReader(body), func(b io.Reader) error { return json.NewDecoder(b).Decode(&out) })
	return out, err
}

func (m remoteMarks) release(ctx context.Context, c admin.Release) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return m.call(ctx, http.MethodPost, "/v1/release", bytes.NewReader(body), func(b io.Reader) error {
		return json.NewDecoder(b).Decode(new(admin.Released))
	})
}

func (m remoteMarks) export(ctx context.Context, w io.Writer) error {
	return m.call(ctx, http.MethodGet, "/v1/export", nil, func(r io.Reader) error { _, err := io.Copy(w, r); return err })
}

func (m remoteMarks) imports(ctx context.Context, r io.Reader) (out tokenstore.ImportResult, err error) {
	err = m.call(ctx, http.MethodPost, "/v1/import", r, func(b io.Reader) error { return json.NewDecoder(b).Decode(&out) })
	return out, err
}

const lowerHint = "to lower a mark add --lower --reason WHY: tokens between the two are let in again"

// localMarks are the marks in the directory of a stopped proxy.
type localMarks struct{ *tokenstore.Store }

func (m localMarks) list(_ context.Context, prefix string, each func(admin.Mark) error) error {
	return m.Range(prefix, func(one fencing.ResourceMark) error { return each(admin.MarkOf(one, true)) })
}

func (m localMarks) get(_ context.Context, r fencing.Resource) (admin.Mark, error) {
	mark, ok, err := m.Load(r)
	if err == nil && !ok {
		err = fmt.Errorf("%q has no mark: no token was ever seen on it", r)
	}
	return admin.MarkOf(fencing.ResourceMark{Resource: r, Mark: mark}, true), err
}

func (m localMarks) set(_ context.Context, r fencing.Resource, c admin.Change) (admin.Changed, error) {
	present, had, err := m.Load(r)
	if err != nil {
		return admin.Changed{}, err
	}
	epochs, err := m.hasEpochs()
	if err != nil {
		return admin.Changed{}, err
	}
	mark, err := c.Mark(present, had, epochs)
	if err != nil {
		return admin.Changed{}, &usageError{err}
	}
	mark.Draining = present.Draining
	out := admin.Changed{Resource: string(r), New: mark.Format.Describe(mark.Token)}
	if had {
		out.Old = present.Format.Describe(present.Token)
		if mark.Token.Less(present.Token) && !c.Lower {
			return out, withHint(fmt.Errorf("the mark of %q is %s, above %s", r, out.Old, out.New), lowerHint)
		}
	}
	return out, m.Set(r, mark)
}

func (m localMarks) release(_ context.Context, c admin.Release) error {
	r := fencing.Resource(c.Resource)
	mark, ok, err := m.Load(r)
	if err != nil {
		return err
	}
	if !ok || mark.Holder == "" {
		return fmt.Errorf("%q: %w", r, holds.ErrNotHeld)
	}
	mark.Holder, mark.TTL, mark.By, mark.Reason = "", 0, c.By, c.Reason
	return m.Set(r, mark)
}

// hasEpochs reports whether a policy of the last run had an epoch.
func (m localMarks) hasEpochs() (bool, error) {
	names, err := m.MetaNames(metaEpoch)
	return len(names) > 0, err
}

func (m localMarks) export(_ context.Context, w io.Writer) error { return m.Export(w) }

func (m localMarks) imports(_ context.Context, r io.Reader) (tokenstore.ImportResult, error) {
	return m.Import(r)
}
