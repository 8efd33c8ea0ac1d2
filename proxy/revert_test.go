package proxy_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// guarded is a store that turns away whoever does not say the password.
func guarded(store http.Handler, code int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "good" {
			store.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

func TestTokenOfACallerWhoIsTurnedAwayDoesNotCount(t *testing.T) {
	for _, code := range []int{401, 403} {
		for _, body := range []string{"", "no", strings.Repeat("no ", 1000)} {
			store := newPlainStore()
			r := newRigWith(t, guarded(store, code, body), defaultYAML)
			put := func(token uint64, auth string) reply {
				return r.must("PUT", "/a", "x", "Fencing-Token", strconv.FormatUint(token, 10), "Authorization", auth)
			}
			if got := put(9e18, "bad"); got.code != code || got.body != body {
				t.Errorf("the first ever = %v; want %d", got, code)
			}
			if _, ok, err := r.store.Load("a"); ok || err != nil {
				t.Errorf("the resource has a mark (%v); want none", err)
			}
			if got := put(34, "good"); got.code != 201 {
				t.Errorf("the holder = %v; want 201", got)
			}
			if got := put(9e18, "bad"); got.code != code {
				t.Errorf("got %v; want %d", got, code)
			}
			if m := r.mark("a"); m != 34 {
				t.Errorf("%d: the mark is %d when the answer is seen; want 34", code, m)
			}
			if got := put(34, "good"); got.code != 201 {
				t.Errorf("the holder again = %v; want 201", got)
			}
			if got := put(33, "good"); got.code != 412 {
				t.Errorf("stale = %v; want 412", got)
			}
			if got := put(34, "bad"); got.code != code || r.mark("a") != 34 {
				t.Errorf("an equal token that is turned away = %v, mark %d; want %d and 34", got, r.mark("a"), code)
			}
		}
	}
}

func TestTokenThatWasAcceptedOnceStays(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, guarded(store, 403, "no"), defaultYAML)
	put := func(token, auth string) reply {
		return r.must("PUT", "/a", "x", "Fencing-Token", token, "Authorization", auth)
	}
	put("34", "good")
	put("40", "good")
	put("40", "bad")
	if m := r.mark("a"); m != 40 {
		t.Errorf("mark = %d; want 40, with which a write was accepted", m)
	}
}

func TestOtherAnswersKeepTheToken(t *testing.T) {
	for _, code := range []int{400, 404, 409, 500} {
		store := newPlainStore()
		r := newRigWith(t, guarded(store, code, "no"), defaultYAML)
		r.must("PUT", "/a", "x", "Fencing-Token", "40", "Authorization", "bad")
		if m := r.mark("a"); m != 40 {
			t.Errorf("after %d the mark is %d; want 40", code, m)
		}
	}
}

func TestRevertOnIsThePolicys(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, guarded(store, 403, "no"), "unmatched_writes: fence\ndefaults: {revert_on: [401]}")
	r.must("PUT", "/a", "x", "Fencing-Token", "40", "Authorization", "bad")
	if m := r.mark("a"); m != 40 {
		t.Errorf("mark = %d; want 40", m)
	}
}
