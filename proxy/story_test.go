package proxy_test

import (
	"net/http"
	"testing"
)

func TestStaleWriterIsRefused(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	r.put("/rides/7", 33, "from A", 201, "admitted")
	r.put("/rides/7", 34, "from B", 201, "admitted")
	got := r.put("/rides/7", 33, "from A again", 412, "stale")
	if got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("Content-Type = %q; want application/problem+json", got.header.Get("Content-Type"))
	}
	if v := store.get("/rides/7"); v != "from B" {
		t.Errorf("the store holds %q; want %q", v, "from B")
	}
	if got := r.must(http.MethodGet, "/rides/7", ""); got.code != 200 || got.body != "from B" {
		t.Errorf("GET = %v; want 200 with B's bytes", got)
	}
	if m := r.mark("rides/7"); m != 34 {
		t.Errorf("mark = %d; want 34", m)
	}
}
