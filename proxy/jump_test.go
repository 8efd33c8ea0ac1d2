package proxy_test

import (
	"net/http"
	"testing"
)

const jumpYAML = `
defaults: {dialect: webdav, collections: subtree, token: {max_jump: 100}}
unmatched_writes: fence
`

// A write on a collection raises the mark of all that lies beneath, so its token is measured by that.
func TestTokenOfACollectionThatJumpsTooFar(t *testing.T) {
	for _, method := range []string{"DELETE", "MKCOL", "COPY", "MOVE", "LOCK", "PROPPATCH"} {
		t.Run(method, func(t *testing.T) {
			r := newRigWith(t, newPlainStore(), jumpYAML)
			r.put("/dir/k", 34, "A", 201, "admitted")
			r.put("/dir/k", 9000, "A", 400, "implausible")
			path, h := "/dir", []string{"Fencing-Token", "9000"}
			if method == "COPY" || method == "MOVE" {
				path, h = "/other", append(h, "Destination", "/dir", "Overwrite", "T")
			}
			_, _ = r.do(method, path, "", h...)
			r.put("/dir/k", 35, "B", 201, "admitted")
		})
	}
	t.Run("the answer, and what is near the mark", func(t *testing.T) {
		r := newRigWith(t, newPlainStore(), jumpYAML)
		r.put("/dir/k", 34, "A", 201, "admitted")
		for token, want := range map[string]int{"9000": 400, "134": 204} {
			if a, err := r.do("DELETE", "/dir/", "", "Fencing-Token", token); err != nil || a.code != want {
				t.Errorf("DELETE with %s = %v, %v; want %d", token, a, err, want)
			}
		}
		r.put("/dir/new", 9000, "C", 400, "implausible") // it has no mark, its collection has
		r.put("/dir/new", 135, "C", 201, "admitted")
	})
}

// A token that the store has not answered yet, and refuses in the end, is nothing to be measured by.
func TestTokenInFlightBeneathACollectionIsNoStep(t *testing.T) {
	store := newPlainStore()
	arrived, answer := make(chan struct{}), make(chan struct{})
	r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/dir/new" {
			close(arrived)
			<-answer
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, req)
	}), jumpYAML)
	r.put("/dir/k", 34, "A", 201, "admitted")
	done := make(chan struct{})
	go func() { // ends with the answer
		defer close(done)
		r.put("/dir/new", 9000, "X", 401, "admitted")
	}()
	<-arrived
	a, err := r.do("DELETE", "/dir/", "", "Fencing-Token", "9000")
	if err != nil || a.code != 400 {
		t.Errorf("DELETE = %v, %v; want 400", a, err)
	}
	close(answer)
	<-done
	r.put("/dir/k", 35, "B", 201, "admitted")
}
