package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

func TestLocationAtTheStoreIsOneAtTheProxy(t *testing.T) {
	var location, code string
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(map[string]int{"201": 201, "301": 301, "302": 302, "303": 303, "307": 307, "308": 308}[code])
	}))
	defer up.Close()
	own, _ := url.Parse(up.URL)
	r := newRig(t, up.URL, defaultYAML+"policies:\n- {name: seen, match: {path: '/seen'}, resource: seen, mode: observe}\n")
	me := strings.TrimPrefix(r.url, "http://")
	const host = "store.test:8443"
	for _, tt := range []struct {
		name, method, path, location, code, want string
		status                                   int
	}{
		{"by its address", "PUT", "/a", up.URL + "/a/?x=1#y", "201", "http://" + host + "/a/?x=1#y", 201},
		{"of a read", "GET", "/a", up.URL + "/a/", "301", "http://" + host + "/a/", 301},
		{"localhost", "PUT", "/a", "http://localhost:" + own.Port() + "/b", "307", "http://" + host + "/b", 307},
		{"the client's name with its port", "PUT", "/a", "http://STORE.test:" + own.Port() + "/b", "308", "http://" + host + "/b", 308},
		{"without a scheme", "PUT", "/a", "//127.0.0.1:" + own.Port() + "/b", "307", "http://" + host + "/b", 307},
		{"no path", "PUT", "/a", up.URL, "307", "http://" + host, 307},
		{"spelled as it is", "PUT", "/a", up.URL + "/%2f%41 b", "201", "http://" + host + "/%2f%41 b", 201},
		{"the proxy's own", "PUT", "/a", "http://" + host + "/b", "307", "http://" + host + "/b", 307},
		{"the proxy's own by https", "PUT", "/a", "https://" + host + "/b", "307", "https://" + host + "/b", 307},
		{"a path", "PUT", "/a", "/b", "307", "/b", 307},
		{"a path with a URL in it", "PUT", "/a", "/b?to=http://x.test/", "307", "/b?to=http://x.test/", 307},
		{"a read elsewhere", "GET", "/a", "http://other.test/b", "307", "http://other.test/b", 307},
		{"see other", "POST", "/a", "http://other.test/b", "303", "http://other.test/b", 303},
		{"made elsewhere", "POST", "/a", "http://other.test/b", "201", "http://other.test/b", 201},
		{"observed", "PUT", "/seen", "http://other.test/b", "307", "http://other.test/b", 307},
		{"elsewhere 301", "PUT", "/a", "http://other.test/b", "301", "", 502},
		{"elsewhere 302", "PUT", "/a", "https://other.test/b", "302", "", 502},
		{"elsewhere 307", "PUT", "/a", "//other.test/b", "307", "", 502},
		{"elsewhere 308", "DELETE", "/a", "http://127.0.0.1:1/b", "308", "", 502},
		{"a backslash", "PUT", "/a", "/\\other.test/b", "307", "", 502},
		{"no slashes", "PUT", "/a", "http:other.test/b", "308", "", 502},
		{"a read that clients read differently", "GET", "/a", "/\\other.test/b", "307", "/\\other.test/b", 307},
		{"another port of the client's name", "PUT", "/a", "http://store.test:1/b", "307", "", 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			location, code = tt.location, tt.code
			got := r.must(tt.method, tt.path, "", "Host", host, "Fencing-Token", "7")
			if got.code != tt.status || got.header.Get("Location") != tt.want {
				t.Errorf("got %d to %q; want %d to %q", got.code, got.header.Get("Location"), tt.status, tt.want)
			}
			if tt.status == 502 && (got.header.Get("Fencing-Status") != "admitted" || !strings.Contains(got.body, "urn:fenceproxy:redirected")) {
				t.Errorf("the refusal is %v", got)
			}
		})
	}
	location, code = up.URL+"/b", "307"
	if got := r.must("PUT", "/a", "", "Fencing-Token", "7", "X-Forwarded-Proto", "https"); got.header.Get("Location") != "https://"+me+"/b" {
		t.Errorf("behind a balancer that ends TLS: %q", got.header.Get("Location"))
	}
	r.put("/a", 8, "x", 307, "admitted") // nothing is left in the gate
}

func TestNginxRedirectsStayAtTheProxy(t *testing.T) {
	s := storetest.Nginx(t)
	if err := os.Mkdir(filepath.Join(s.Root, "dir"), 0o777); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, s.URL, defaultYAML)
	got := r.must("GET", "/dir", "")
	if want := r.url + "/dir/"; got.code != 301 || got.header.Get("Location") != want {
		t.Errorf("nginx sent %d to %q; want 301 to %q", got.code, got.header.Get("Location"), want)
	}
}
