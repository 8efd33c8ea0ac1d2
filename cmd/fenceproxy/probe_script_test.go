package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/webdav"
)

// cmdDAV starts a WebDAV store over the directory dav. With "fold" it takes no notice of case, with "slow" it takes its time.
func cmdDAV(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: dav [fold] [slow]")
	}
	dir := ts.MkAbs("dav")
	ts.Check(os.MkdirAll(dir, 0o755))
	store := &webdav.Handler{FileSystem: webdav.Dir(dir), LockSystem: webdav.NewMemLS()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(args, "fold") {
			r.URL.Path = strings.ToLower(r.URL.Path)
			r.Header.Set("Destination", strings.ToLower(r.Header.Get("Destination")))
		}
		if slices.Contains(args, "slow") {
			time.Sleep(20 * time.Millisecond)
		}
		store.ServeHTTP(w, r)
	}))
	ts.Defer(server.Close)
	ts.Setenv("DAV", server.URL)
}
