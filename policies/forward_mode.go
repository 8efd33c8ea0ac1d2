package policies

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ForwardMode is the listener for clients that reach their stores by HTTP_PROXY and HTTPS_PROXY.
type ForwardMode struct {
	Listen Listener // no address: there is none
	// CA is the operator's own certificate authority, with which the proxy opens TLS. Empty only if no store is reached by https.
	CA     CertFiles
	Tunnel bool // unlisted: tunnel. Requests for other hosts are passed on unseen, instead of refused
	Stores []Store
}

// CertFiles names the PEM files of a certificate and its key.
type CertFiles struct{ Cert, Key string }

// Store is one that clients reach in forward mode.
type Store struct {
	// Authority begins the key of each of its resources, so that stores do not share marks, and listeners to one store do.
	Authority string
	Upstream  Upstream

	names []string // canonical authorities under which clients know it; with "*." for whatever lies below a domain
}

// Names lists the authorities under which clients reach the store, its own first.
func (s *Store) Names() []string { return append([]string(nil), s.names...) }

// Find returns the store that a client means with an authority in its canonical form (see [Authority]), or nil. The exact name counts, and
// else the longest domain that it lies below.
func (f *ForwardMode) Find(authority string) *Store {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return nil
	}
	var found *Store
	longest := 0
	for i := range f.Stores {
		for _, name := range f.Stores[i].names {
			if name == authority {
				return &f.Stores[i]
			}
			below, wild := strings.CutPrefix(name, "*.")
			if h, p, err := net.SplitHostPort(below); wild && err == nil && p == port && len(h) > longest && strings.HasSuffix(host, "."+h) {
				found, longest = &f.Stores[i], len(h)
			}
		}
	}
	return found
}

// NamesAt lists the names of stores that are at the host of an authority, at whatever port. A name is no other host's.
func (f *ForwardMode) NamesAt(authority string) (names []string) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		return nil
	}
	host = strings.TrimSuffix(host, ".")
	for i := range f.Stores {
		for _, name := range f.Stores[i].names {
			below, wild := strings.CutPrefix(name, "*.")
			if h, _, err := net.SplitHostPort(below); err == nil && (h == host || wild && strings.HasSuffix(host, "."+h)) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (c *Config) decodeForward(root section) {
	if !root.has("forward") {
		return
	}
	s := root.at("forward").section("listen", "ca", "unlisted", "upstreams")
	if s.has("listen") {
		c.Forward.Listen.decode(s, "listen")
	} else {
		s.at("listen").errorf("write listen: 127.0.0.1:3128", "the section names no listener")
	}
	enum(s, "unlisted", &c.Forward.Tunnel, nil, choice[bool]{"refuse", false}, choice[bool]{"tunnel", true})
	if s.has("ca") {
		c.Forward.CA = s.at("ca").certFiles()
	}
	v, ok := s.keys["upstreams"]
	if !ok {
		s.at("upstreams").errorf("write upstreams: [{url: https://s3.example.test}]", "the section names no store, so nothing would be fenced")
		return
	}
	items := v.items(false)
	if len(items) == 0 && v.kind() == "a list" {
		v.errorf("write [{url: https://s3.example.test}]", "the list is empty, so nothing would be fenced")
	}
	opens, told := false, len(s.l.problems)
	for _, item := range items {
		store := c.decodeStoreOf(item.section("url", "aliases", "authority", "dial", "timeout", "tls"), &opens)
		c.Forward.Stores = append(c.Forward.Stores, store)
	}
	switch {
	case opens && !s.has("ca"):
		s.at("ca").errorf(`make one with "fenceproxy ca init", and write ca: {cert: FILE, key: FILE}`, "clients reach a store by https, and without a CA of your own its requests cannot be seen")
	case !opens && s.has("ca") && len(c.Forward.Stores) > 0 && len(s.l.problems) == told: // a URL that was reported may have been https
		s.at("ca").errorf("", "it has no effect: no store is reached by https")
	}
	c.checkStores(v, items)
}

// certFiles reads {cert, key}.
func (v value) certFiles() (f CertFiles) {
	s := v.section("cert", "key")
	s.text("cert", &f.Cert)
	s.text("key", &f.Key)
	for _, key := range []string{"cert", "key"} {
		if !s.has(key) {
			s.at(key).errorf("name a PEM file", "%s is missing", key)
		}
	}
	return f
}

// decodeStoreOf reads one store of forward mode. opens is set if clients reach it by https.
func (c *Config) decodeStoreOf(s section, opens *bool) Store {
	store := Store{Upstream: Upstream{Timeout: 60 * time.Second, PreserveHost: true}}
	var raw string
	s.text("url", &raw)
	name := func(v value, raw string, wild bool) string {
		star := ""
		scheme, rest, ok := strings.Cut(raw, "://")
		if wild {
			if below, found := strings.CutPrefix(rest, "*."); found {
				star, rest = "*.", below
			}
		}
		authority, valid := Authority(scheme, rest)
		switch {
		case !ok || scheme != "http" && scheme != "https":
			v.errorf("write it as clients do, without a path: https://s3.example.test", "%q is not an http or https URL", clip(raw))
		case !valid:
			v.errorf("write it as clients do, without a path: https://s3.example.test", "%q does not name a host, or more than a host and a port", clip(raw))
		default:
			*opens = *opens || scheme == "https"
			return star + authority
		}
		return ""
	}
	if !s.has("url") {
		s.at("url").errorf("write url: https://s3.example.test", "the store is not named")
	} else if raw = strings.TrimSuffix(raw, "/"); raw != "" {
		if own := name(s.at("url"), raw, false); own != "" {
			scheme, host, _ := strings.Cut(raw, "://")
			store.names = append(store.names, own)
			store.Upstream.URL = &url.URL{Scheme: scheme, Host: host}
		}
	}
	if v, ok := s.keys["aliases"]; ok {
		for _, item := range v.items(true) {
			if text, ok := item.text(); ok {
				if n := name(item, strings.TrimSuffix(text, "/"), true); n != "" {
					store.names = append(store.names, n)
				}
			}
		}
	}
	if len(store.names) > 0 {
		store.Authority = store.names[0]
	}
	if s.has("authority") {
		decodeAuthority(s, store.Upstream.scheme(), &store.Authority)
	}
	if v, ok := s.keys["dial"]; ok {
		if text, ok := v.text(); ok {
			checkAddress(v, text)
			store.Upstream.Dial = text
		}
	}
	s.duration("timeout", &store.Upstream.Timeout, false)
	store.Upstream.decodeTLS(s)
	return store
}

// decodeAuthority reads the authority with which resource keys begin.
func decodeAuthority(s section, scheme string, dst *string) {
	v := s.at("authority")
	text, ok := v.text()
	if !ok {
		return
	}
	authority, valid := Authority(scheme, text)
	if !valid {
		v.errorf("write host:port as clients name the store: s3.example.test:443", "%q is not an authority", clip(text))
		return
	}
	*dst = authority
}

func (u *Upstream) scheme() string {
	if u.URL == nil {
		return ""
	}
	return u.URL.Scheme
}

// address is where the upstream is reached, in canonical form; empty if it is not a TCP address.
func (u *Upstream) address() string {
	if u.URL == nil || u.Socket != "" {
		return ""
	}
	at, _ := Authority(u.URL.Scheme, cmp.Or(u.Dial, u.URL.Host)) // what is none was reported
	host, port, _ := net.SplitHostPort(at)
	if ip := net.ParseIP(host); host == "localhost" || ip.IsLoopback() {
		return "127.0.0.1:" + port
	}
	return at
}

// checkStores finds stores that would be taken for two: one object would have two marks, and be fenced by neither.
func (c *Config) checkStores(list value, items []value) {
	type claim struct {
		at    string
		store *Store
	}
	var names, addresses []claim
	for i := range c.Forward.Stores {
		store := &c.Forward.Stores[i]
		for _, n := range store.names {
			for _, other := range names {
				if other.at == n {
					items[i].errorf("give each name once", "%s names two stores", n)
				}
			}
			names = append(names, claim{n, store})
		}
		for _, n := range store.names {
			host, _, _ := net.SplitHostPort(n)
			for _, other := range names {
				if h, _, _ := net.SplitHostPort(other.at); h == host && other.store != store && other.store.Authority != store.Authority {
					items[i].warnf("make it an alias of the other one, or give both the same authority, if they are one",
						"%s and %s are two stores of one host: if they are one store, each object has two marks", other.at, n)
				}
			}
		}
		at := store.Upstream.address()
		if at == "" {
			continue
		}
		for _, other := range addresses {
			if other.at == at && other.store.Authority != store.Authority {
				items[i].errorf("make it an alias of the other one, or give both the same authority", "it is at %s as another store of the list is: one object would have two marks", at)
			}
		}
		addresses = append(addresses, claim{at, store})
		if at == c.Upstream.address() && c.Upstream.Authority != store.Authority {
			items[i].errorf("write upstream.authority: "+store.Authority,
				"it is at %s as the upstream is: an object that is reached by both listeners would have two marks", at)
		}
	}
	if a := c.Upstream.Authority; a != "" && len(items) > 0 {
		for i := range c.Forward.Stores {
			if c.Forward.Stores[i].Authority == a {
				return
			}
		}
		list.warnf("name it as one of the stores does", "upstream.authority is %s, which is the authority of no store of the list", a)
	}
}

// checkStars finds names below a domain that no key tells apart from each other, nor from paths.
func (c *Config) checkStars(root section) {
	for i := range c.Forward.Stores {
		for _, name := range c.Forward.Stores[i].names {
			if strings.HasPrefix(name, "*.") && !c.Policies.readsHost() {
				root.at("forward").errorf("set identity: {virtual_host_base: "+strings.TrimPrefix(name[:strings.LastIndexByte(name, ':')], "*.")+"} with dialect: s3, or use {host} in the resource",
					"the alias %s stands for many hosts, and no policy looks at the host: one object could have two keys, and two objects one", name)
				return
			}
		}
	}
}

// readsHost reports whether some policy's keys depend on the host.
func (s *Set) readsHost() bool {
	return s.namesBuckets() || slices.ContainsFunc(s.all, func(p *Policy) bool {
		return slices.ContainsFunc(p.templates, func(t template) bool {
			return slices.ContainsFunc(t.parts, func(pt part) bool { return pt.kind == partHost })
		})
	})
}

// Authorities lists, by the ways to a store, the authority that begins its keys. When one changes, the marks of that store begin anew.
func (s *Set) Authorities() map[string]string {
	out := map[string]string{}
	if s.reverse {
		out["upstream"] = cmp.Or(s.authority, "(none)")
	}
	if s.forward == nil {
		return out
	}
	for i := range s.forward.Stores {
		store := &s.forward.Stores[i]
		for _, name := range store.names {
			out["forward "+name] = store.Authority
		}
		if at := store.Upstream.address(); at != "" {
			out["forward at "+at] = store.Authority
		}
	}
	return out
}

// Reserved lists what no key of the upstream's resources may begin with, if those begin with no authority themselves: the keys of the stores
// of forward mode do.
func (s *Set) Reserved() []string { return s.reserved }

// KeepStores has the set know the stores of another one, which are served until the process ends. It is called before the set is used.
func (s *Set) KeepStores(of *Set) { s.setStores(of.reverse, of.authority, of.forward) }

func (s *Set) setStores(reverse bool, authority string, forward *ForwardMode) {
	s.reverse, s.authority, s.forward, s.reserved = reverse, authority, forward, nil
	if authority == "" && forward != nil {
		for i := range forward.Stores {
			s.reserved = append(s.reserved, forward.Stores[i].Authority+"/")
		}
	}
}

// AuthorityOf returns the authority that begins the keys of what a URL names: of the store that forward mode reaches by it, or of the
// upstream.
func (s *Set) AuthorityOf(scheme, hostport string) string {
	if at, ok := Authority(scheme, hostport); ok && s.forward != nil {
		if store := s.forward.Find(at); store != nil {
			return store.Authority
		}
	}
	return s.authority
}

// Reverse reports whether there is an upstream, which clients reach by paths alone.
func (s *Set) Reverse() bool { return s.reverse }

// Unlisted says what becomes of a request for a host in forward mode: whether it is for none of the stores, and passed on all the same.
func (s *Set) Unlisted(scheme, hostport string) (unlisted, tunnel bool) {
	at, ok := Authority(scheme, hostport)
	if s.forward == nil || len(s.forward.Stores) == 0 || ok && s.forward.Find(at) != nil {
		return false, false
	}
	return true, s.forward.Tunnel && ok && len(s.forward.NamesAt(at)) == 0
}

// Authority begins the resource keys of the store behind the upstream; empty: they begin with none.
func (s *Set) Authority() string { return s.authority }
