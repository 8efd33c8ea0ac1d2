package examples

import (
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTerraformStateRefusesTheStaleApply(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		notPackaged(t, "terraform is not installed")
	}
	needs(t, "sh", "curl")
	_, l := run(t, t.TempDir(), nil, "store", "-listen", "127.0.0.1:0")
	store := "http://" + l.await(t, `store: serving on (\S+)`)[1]

	// What reaches the store: neither the query nor the user name with the token.
	var mu sync.Mutex // guards seen
	var seen []string
	watched := between(t, store, "", func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.RequestURI+" "+r.Header.Get("Authorization"))
		return 0
	})
	r := before(t, "terraform-state/fenceproxy.yaml", watched)
	r.store = store
	samePlay(t, "terraform-state", demoOf(t, "terraform-state", r))

	mu.Lock()
	defer mu.Unlock()
	puts := 0
	for _, s := range seen {
		if s == "PUT /states/rides " {
			puts++
		} else if s != "GET /states/rides " {
			t.Errorf("the store saw %q", s)
		}
	}
	if puts != 3 {
		t.Errorf("the store saw %d PUTs; want those of A, B and C:\n%s", puts, strings.Join(seen, "\n"))
	}
	var stale []string
	for _, o := range r.outcomes(t, "states/rides") {
		if strings.HasPrefix(o, "stale") {
			stale = append(stale, o)
		}
	}
	// One GET of terraform, one of curl, one PUT of terraform: nothing is tried again.
	if !slices.Equal(stale, []string{"stale 33", "stale 33", "stale 33"}) {
		t.Errorf("the proxy refused %q; want three", stale)
	}
}
