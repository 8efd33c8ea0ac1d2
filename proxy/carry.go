package proxy

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// carry forwards a request through the fence and passes the answer on. What it gets is the edge's own copy of the request, so that it may
// change it; its header map is still the client's.
func (p *Proxy) carry(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r.Context())
	if x == nil { // it did not come through the edge
		panic(http.ErrAbortHandler)
	}
	r.Header = forwarded(r.Header)
	if f := x.decision.Forward; f != nil && f.Authorization != nil {
		if r.Header.Del("Authorization"); *f.Authorization != "" {
			r.Header.Set("Authorization", *f.Authorization)
		}
	}
	if !x.up.preserveHost {
		r.Host = x.up.host
	}
	r.Close = false // that was said of the client's connection
	if r.ContentLength == 0 {
		r.Body = nil
	}
	resp, err := fence{p}.RoundTrip(r)
	x.noMoreInterim()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	resp = x.redirect(resp)
	if err := passOn(w, resp); err != nil {
		resp.Body.Close()
		p.log.Debug("an answer was not passed on to its end", keyError, err)
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
}

// hopByHop are the headers of one connection (RFC 9110 section 7.6.1), and those that older proxies and RFC 2616 know as such.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// copyEndToEnd copies the headers that do not end here. The values are shared: nobody changes one in place.
func copyEndToEnd(to, from http.Header) {
	var named map[string]bool // by Connection, in canonical form
	for _, line := range from["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if named == nil {
				named = map[string]bool{}
			}
			named[http.CanonicalHeaderKey(strings.Trim(name, " \t"))] = true
		}
	}
	for name, vs := range from {
		if !hopByHop[name] && (named == nil || !named[http.CanonicalHeaderKey(name)]) { // S3's own names are not in canonical form
			to[name] = vs
		}
	}
}

// forwarded returns what of a request's headers goes to the upstream. Who the client was stays with the request even if Connection names
// it: a client must not get rid of what a proxy before this one has noted. (The edge has refused other names that matter.)
func forwarded(h http.Header) http.Header {
	out := make(http.Header, len(h))
	copyEndToEnd(out, h)
	if h["Connection"] != nil {
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if vs := h[name]; vs != nil {
				out[name] = vs
			}
		}
	}
	for _, line := range h["Te"] {
		for coding := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(coding, " \t"), "trailers") {
				out["Te"] = []string{"trailers"} // they are passed on
			}
		}
	}
	return out
}

// passOn writes the upstream's answer to the client. A body of unknown length leaves piece by piece as it comes.
func passOn(w http.ResponseWriter, resp *http.Response) error {
	h := w.Header()
	copyEndToEnd(h, resp.Header)
	announced := len(resp.Trailer)
	if announced > 0 {
		names := make([]string, 0, announced)
		for name := range resp.Trailer {
			names = append(names, name)
		}
		h.Set("Trailer", strings.Join(names, ", "))
	}
	w.WriteHeader(resp.StatusCode)
	if resp.Body != http.NoBody {
		if err := copyBody(w, resp); err != nil {
			return err
		}
	}
	resp.Body.Close() // fills in the trailers
	if len(resp.Trailer) == 0 {
		return nil
	}
	_ = http.NewResponseController(w).Flush() // or the server would give a short body a Content-Length, and drop the trailers
	prefix := ""
	if len(resp.Trailer) != announced {
		prefix = http.TrailerPrefix
	}
	for name, vs := range resp.Trailer {
		h[prefix+name] = vs
	}
	return nil
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func copyBody(w http.ResponseWriter, resp *http.Response) error {
	var to io.Writer = w
	if unsized(resp) {
		f := &flushed{w: w, c: http.NewResponseController(w)}
		f.flush() // the head may be all that comes for a while
		to = f
	}
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	_, err := io.CopyBuffer(to, resp.Body, buf[:])
	return err
}

// unsized reports whether the body is one whose pieces somebody may wait for.
func unsized(resp *http.Response) bool {
	if resp.ContentLength < 0 {
		return true
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // one that cannot be read is no event stream
	return media == "text/event-stream"
}

// flushed sends each piece on its way at once.
type flushed struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f *flushed) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	f.flush()
	return n, err
}

func (f *flushed) flush() { _ = f.c.Flush() } // the next write says what is wrong

// interim passes a 1xx answer on. The transport may still call it when the round trip has ended, and the header map is in use then.
func (x *exchange) interim(status int, from http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.final {
		return
	}
	h := x.Header()
	copyEndToEnd(h, from)
	h.Del(statusHeader) // that word is the proxy's
	x.WriteHeader(status)
	clear(h)
}

func (x *exchange) noMoreInterim() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.final = true
}
