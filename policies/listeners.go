package policies

import (
	"cmp"
	"net"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Listener is where somebody connects.
type Listener struct {
	Address string       // host:port, or unix:///path for operators and leases; empty for none
	TLS     *ListenerTLS // nil for plain HTTP
}

// ListenerTLS names PEM files. ClientCA, if set, makes a client certificate from it mandatory, unless it is only requested.
type ListenerTLS struct {
	Cert, Key, ClientCA string
	Request             bool   // client_auth: request. A client without a certificate has no name
	Section             string // of the configuration, for messages: "admin.listen.tls"
}

// Socket returns the path of a Unix socket, or "".
func (l Listener) Socket() string {
	path, ok := strings.CutPrefix(l.Address, "unix://")
	if !ok {
		return ""
	}
	return path
}

// Public reports whether other machines may reach it.
func (l Listener) Public() bool {
	return l.Address != "" && l.Socket() == "" && !loopback(l.Address)
}

// loopback reports whether only this machine reaches a host, with or without a port.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// Admin is the operator's listener.
type Admin struct {
	Listen    Listener
	TokenFile string // file with the bearer token for changes; empty: nothing can be changed
}

// Leases is the listener for built-in leases.
type Leases struct {
	Listen Listener
	Max    int // how many are known at a time
}

func (c *Config) decodeListen(root section) {
	if root.has("listen") {
		c.Listen.decode(root, "listen")
	}
}

// decode reads an address, or {address, tls}.
func (l *Listener) decode(at section, key string) {
	v := at.at(key)
	if v.kind() != "a mapping" {
		at.text(key, &l.Address)
		checkAddress(v, l.Address)
		return
	}
	s := v.section("address", "tls")
	s.text("address", &l.Address)
	checkAddress(s.at("address"), l.Address)
	if !s.has("tls") {
		return
	}
	t := s.at("tls").section("cert", "key", "client_ca", "client_auth")
	l.TLS = &ListenerTLS{Section: s.at("tls").path}
	t.text("cert", &l.TLS.Cert)
	t.text("key", &l.TLS.Key)
	t.text("client_ca", &l.TLS.ClientCA)
	enum(t, "client_auth", &l.TLS.Request, nil, choice[bool]{"require", false}, choice[bool]{"request", true})
	if t.has("client_auth") && !t.has("client_ca") {
		t.at("client_auth").errorf("name the authority of the clients with client_ca", "it has no effect alone")
	}
	for _, key := range []string{"cert", "key"} {
		if !t.has(key) {
			t.at(key).errorf("name a PEM file", "TLS needs a certificate and its key; %s is missing", key)
		}
	}
}

func (c *Config) decodeAdmin(root section) {
	if !root.has("admin") {
		return
	}
	s := root.at("admin").section("listen", "token_file")
	c.Admin.Listen.decodeOwn(s)
	s.text("token_file", &c.Admin.TokenFile)
	if c.Admin.Listen.Address == "" && s.has("token_file") {
		s.at("token_file").errorf("", "it has no effect: admin.listen is off")
	}
}

// maxLeases bounds leases.max: what is known of a lease is in memory.
const maxLeases = 1_000_000

func (c *Config) decodeLeases(root section) {
	if !root.has("leases") {
		return
	}
	s := root.at("leases").section("listen", "max")
	if c.Leases.Listen.decodeOwn(s); !s.has("listen") {
		s.at("listen").errorf("write listen: "+DefaultLeasesListen, "the section names no listener, so there would be no leases")
	}
	v, ok := s.keys["max"]
	if !ok {
		return
	}
	n, ok := v.integer()
	switch {
	case !ok:
	case n == 0 || n > maxLeases:
		v.errorf("", "%d is out of range: 1 to %d leases", n, maxLeases)
	default:
		c.Leases.Max = n
	}
	if c.Leases.Listen.Address == "" && s.has("listen") {
		v.errorf("", "it has no effect: leases.listen is off")
	}
}

// decodeOwn reads the listener of a section of operators or leases, which may be off or a Unix socket.
func (l *Listener) decodeOwn(s section) {
	v, ok := s.keys["listen"]
	switch {
	case !ok:
	case v.kind() == "a mapping":
		l.decode(s, "listen")
	default:
		if t, ok := v.text(); ok {
			l.set(v, t)
		}
	}
}

func (l *Listener) set(v value, t string) {
	l.Address = t
	path, socket := strings.CutPrefix(t, "unix://")
	switch {
	case t == "off" || t == "":
		*l = Listener{}
	case socket && (!filepath.IsAbs(path) || strings.ContainsAny(path, "?#")):
		v.errorf("write unix:///run/fenceproxy/admin.sock", "a Unix socket needs an absolute path")
	case socket && l.TLS != nil:
		v.errorf("leave tls out", "it has no effect on a Unix socket, whose file says who may connect")
	case !socket:
		checkAddress(v, t)
	}
}

// warnExposed warns of what others can reach past the fence, or without being asked who they are.
func (c *Config) warnExposed(root section) {
	at := func(section, key string) value {
		v := root.at(section)
		if root.has(section) && v.node != nil && v.node.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(v.node.Content); i += 2 {
				if v.node.Content[i].Value == key {
					return v.child(v.node.Content[i+1], join(v.path, key))
				}
			}
		}
		return value{l: v.l, node: v.node, path: join(v.path, key)}
	}
	asks := func(l Listener) bool { return l.TLS != nil && l.TLS.ClientCA != "" && !l.TLS.Request }
	if l := c.Admin.Listen; l.Public() && !asks(l) { // the token of token_file is for changes alone
		at("admin", "listen").warnf("bind it to 127.0.0.1 or unix:///path, or set tls.client_ca",
			"%s is public and shows everybody every resource and mark", l.Address)
	}
	if l := c.Leases.Listen; l.Public() && !asks(l) {
		at("leases", "listen").warnf("bind it to 127.0.0.1, let only writers reach it, or set tls.client_ca",
			"leases are handed out without asking who asks: whoever reaches %s can take one and fence the others out", clip(l.Address))
	}
	if l := c.Listen; c.reverse() != "" && l.Public() && !asks(l) && c.Policies != nil && !c.Policies.asks() {
		root.at("listen").warnf("set tls.client_ca, sign the tokens, or let only writers reach it",
			"%s is public, and nothing proves who sends a token", l.Address)
	}
	if l := c.Forward.Listen; l.Public() && !asks(l) {
		switch {
		case c.Forward.Tunnel:
			at("forward", "listen").warnf("bind it to 127.0.0.1, set tls.client_ca, or unlisted: refuse",
				"%s is public and with unlisted: tunnel leads whoever reaches it anywhere", l.Address)
		case c.Policies != nil && !c.Policies.asks():
			at("forward", "listen").warnf("set tls.client_ca, sign the tokens, or let only writers reach it",
				"%s is public, and nothing proves who sends a token", l.Address)
		}
	}
	if c.Forward.Tunnel && c.Limits.Connections == 0 && c.Limits.ConnectionsPerClient == 0 {
		at("forward", "unlisted").warnf("set limits.connections_per_client", "each tunnel takes two file descriptors, and there is no bound on them")
	}
	if u := &c.Upstream; u.URL != nil && u.Socket == "" && u.Cert == "" && !loopback(cmp.Or(u.Dial, u.URL.Host)) {
		at("upstream", "url").warnf("let only the proxy reach it, by network or by upstream.tls.cert",
			"the store %s is elsewhere: whoever reaches it walks round the fence", u.URL.Host)
	}
}

// asks reports whether every policy that fences asks for more than a number.
func (s *Set) asks() bool {
	for _, p := range s.all {
		if p.Mode != Off && p.verifier == nil && p.allow == nil {
			return false
		}
	}
	return true
}
