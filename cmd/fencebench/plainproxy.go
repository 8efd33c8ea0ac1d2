package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// plainProxy is what one would write in Go without a fence, tuned: connections are kept and buffers used again.
func plainProxy(upstream *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(upstream); r.Out.Host = r.In.Host },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
		BufferPool: &bufferPool{},
	}
}

type bufferPool struct{ sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.Pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.Pool.Put(&b) }

// runPlainProxy is the plain proxy as a process.
func runPlainProxy(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("fencebench plain-proxy", flag.ContinueOnError)
	listen := fs.String("listen", "", "`ADDRESS` to serve")
	upstream := fs.String("upstream", "", "forward to `URL`")
	if err := fs.Parse(args); err != nil {
		return &usageError{err}
	}
	u, err := url.Parse(*upstream)
	if err != nil || u.Host == "" {
		return &usageError{fmt.Errorf("--upstream %q: give a URL such as http://127.0.0.1:9000", *upstream)}
	}
	return serve(ctx, *listen, plainProxy(u))
}
