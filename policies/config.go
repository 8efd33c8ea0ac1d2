package policies

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Config is the whole configuration: the file, the defaults and the overrides. It is not changed once loaded.
type Config struct {
	Listen     Listener
	Upstream   Upstream
	TokenStore TokenStore
	Admin      Admin
	Leases     Leases
	Forward    ForwardMode
	Spool      Spool
	Limits     Limits
	Log        Log
	Policies   *Set

	warnings []Problem
}

// Warnings returns what is legal and probably not meant, in the order of the file.
func (c *Config) Warnings() []Problem { return c.warnings }

// Upstream is the store behind the proxy.
type Upstream struct {
	URL          *url.URL      // scheme and host only; http://localhost where Socket is set
	Socket       string        // path of a Unix socket, or empty
	CA           string        // PEM file that replaces the system's roots, or empty
	Cert, Key    string        // PEM files of the proxy's own certificate, or empty
	Dial         string        // host:port where the store is reached, if not at that of URL
	Authority    string        // begins the keys of its resources; empty: they begin with none
	Timeout      time.Duration // longest wait for the answer
	PreserveHost bool          // the client's Host is sent on, instead of the one in URL
}

// String is the upstream as it is written in the file.
func (u Upstream) String() string {
	switch {
	case u.Socket != "":
		return "unix://" + u.Socket
	case u.URL == nil:
		return ""
	}
	return u.URL.String()
}

// TokenStore says where the high-water marks live.
type TokenStore struct {
	Dir       string
	MustExist bool  // refuse to start on an empty directory
	MinFree   int64 // bytes; below it no new marks
	// MaxResources is how many marks there may be; 0: any number. Above it no resource gets its first one.
	MaxResources int
}

// Spool says where bodies are kept until their write is admitted.
type Spool struct {
	Memory int64  // bytes of one body that are kept in memory
	Dir    string // for what is longer; empty for the system's temporary directory
	Max    int64  // bytes that one body may have
}

// Log says what is logged and how.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// Overrides are values from flags and the environment, which win over the file. An empty string and a nil pointer are unset.
type Overrides struct {
	Listen          string
	UpstreamURL     string
	UpstreamTimeout *time.Duration
	Dir             string
	MustExist       *bool
	AdminListen     string // "off" for none
	AdminTokenFile  string
	LeasesListen    string // "off" for none
	UnmatchedWrites string
	LogLevel        string
	LogFormat       string

	// ReadKey reads the key files of token.signed. Without it none is read, and no signed token is taken.
	ReadKey KeyReader
}

// What a file that says nothing gets.
const (
	DefaultListen      = "127.0.0.1:8080"
	DefaultAdminListen = "127.0.0.1:8081"
	DefaultDir         = "/var/lib/fenceproxy"
	// DefaultLeasesListen is where clients look for leases. Without leases.listen there are none.
	DefaultLeasesListen = "127.0.0.1:8082"
)

func defaultConfig() *Config {
	return &Config{
		Listen:     Listener{Address: DefaultListen},
		Upstream:   Upstream{Timeout: 60 * time.Second, PreserveHost: true},
		TokenStore: TokenStore{Dir: DefaultDir, MinFree: 256 << 20},
		Admin:      Admin{Listen: Listener{Address: DefaultAdminListen}},
		Leases:     Leases{Max: 10000},
		Spool:      Spool{Memory: 1 << 20, Max: 5 << 30},
		Limits:     defaultLimits(),
		Log:        Log{Level: "info", Format: "text"},
	}
}

// Load reads a configuration. name is the file's name, for messages; with an empty name and no data there is no file, and each
// path is fenced as its own resource (unmatched_writes: fence). The error is an [*Errors] with every problem found.
func Load(name string, data []byte, over Overrides) (*Config, error) {
	l := &loader{file: name, readKey: over.ReadKey}
	c := defaultConfig()
	root, found := l.parse(data)
	broken := len(l.problems) > 0 && !found // not YAML at all: what follows would only be noise
	if !found {
		root = value{l: l}
	}
	if !broken {
		s := root.section("listen", "upstream", "forward", "token_store", "admin", "leases", "spool", "limits", "log", "defaults", "unmatched_writes", "policies")
		c.decodeListen(s)
		c.decodeUpstream(s, over)
		c.decodeForward(s)
		c.decodeStore(s)
		c.decodeAdmin(s)
		c.decodeLeases(s)
		c.decodeSpoolAndLog(s)
		c.decodeLimits(s)
		c.apply(value{l: l}, over)
		unmatched := unmatchedReject
		if name == "" && len(data) == 0 {
			unmatched = unmatchedFence
		}
		c.Policies = l.decodePolicies(s, unmatched, over.UnmatchedWrites)
		c.Policies.setStores(c.Upstream.URL != nil, c.Upstream.Authority, &c.Forward)
		c.checkStars(s)
		c.crossCheck(s)
	}
	if len(l.problems) > 0 {
		sortProblems(l.problems)
		return nil, &Errors{Problems: l.problems}
	}
	sortProblems(l.warnings)
	c.warnings = l.warnings
	return c, nil
}

func (c *Config) decodeUpstream(root section, over Overrides) {
	u := section{value: root.at("upstream")}
	if root.has("upstream") {
		u = root.at("upstream").section("url", "authority", "timeout", "preserve_host", "tls")
	}
	var raw string
	u.text("url", &raw)
	switch {
	case raw != "":
		c.Upstream.setURL(u.at("url"), raw)
	case u.has("url"): // reported
	case over.UpstreamURL == "" && root.has("forward") && !root.has("upstream"): // forward mode alone
	case over.UpstreamURL == "":
		u.at("url").errorf("name the store: http://127.0.0.1:9000", "the upstream is missing")
	}
	if over.UpstreamURL != "" {
		c.Upstream.setURL(value{l: root.l, path: "upstream.url"}, over.UpstreamURL)
	}
	u.duration("timeout", &c.Upstream.Timeout, false)
	u.flag("preserve_host", &c.Upstream.PreserveHost)
	if u.has("authority") {
		decodeAuthority(u, c.Upstream.scheme(), &c.Upstream.Authority)
	}
	c.Upstream.decodeTLS(u)
}

// decodeTLS reads how an https upstream is recognised.
func (u *Upstream) decodeTLS(s section) {
	if !s.has("tls") {
		return
	}
	t := s.at("tls").section("ca", "cert", "key")
	t.text("ca", &u.CA)
	t.text("cert", &u.Cert)
	t.text("key", &u.Key)
	for here, other := range map[string]string{"cert": "key", "key": "cert"} {
		if t.has(here) && !t.has(other) {
			t.at(other).errorf("name a PEM file", "a certificate and its key go together; %s is missing", other)
		}
	}
	if u.URL != nil && u.URL.Scheme != "https" {
		s.at("tls").errorf("", "it has no effect: the upstream does not use https")
	}
}

func (u *Upstream) setURL(v value, raw string) {
	parsed, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		v.errorf("write http://host:port", "%q is not a URL", clip(raw))
		return
	}
	const bare = "write scheme, host and port only: http://127.0.0.1:9000"
	switch {
	case parsed.Scheme == "unix":
		if parsed.Host != "" || !filepath.IsAbs(parsed.Path) || strings.ContainsAny(raw, "?#") {
			v.errorf("write unix:///run/store.sock", "a Unix socket needs an absolute path")
			return
		}
		u.Socket, u.URL = parsed.Path, &url.URL{Scheme: "http", Host: "localhost"}
		return
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		v.errorf("write http://, https:// or unix:///", "the scheme of %q is not known", clip(raw))
	case parsed.User != nil:
		v.errorf(bare, "the upstream's URL holds credentials, which the proxy never adds to a request")
	case parsed.Hostname() == "":
		v.errorf(bare, "the upstream's URL has no host")
	case strings.Trim(parsed.Path, "/") != "" || len(parsed.Path) > 1:
		v.errorf(bare, "the upstream's URL has the path %q; requests are forwarded with their own path, unchanged", clip(parsed.Path))
	case strings.ContainsAny(raw, "?#"):
		v.errorf(bare, "the upstream's URL has a query or a fragment")
	default:
		u.Socket, u.URL = "", &url.URL{Scheme: parsed.Scheme, Host: parsed.Host}
	}
}

func (c *Config) decodeStore(root section) {
	if !root.has("token_store") {
		return
	}
	s := root.at("token_store").section("dir", "must_exist", "min_free", "max_resources")
	s.text("dir", &c.TokenStore.Dir)
	s.flag("must_exist", &c.TokenStore.MustExist)
	s.size("min_free", &c.TokenStore.MinFree)
	s.count("max_resources", &c.TokenStore.MaxResources, 0, mostResources)
}

func (c *Config) decodeSpoolAndLog(root section) {
	if root.has("spool") {
		s := root.at("spool").section("memory", "dir", "max")
		s.size("memory", &c.Spool.Memory)
		s.text("dir", &c.Spool.Dir)
		s.size("max", &c.Spool.Max)
		if c.Spool.Max == 0 {
			s.at("max").errorf("", "no body at all would pass")
		}
	}
	if root.has("log") {
		s := root.at("log").section("level", "format")
		enum(s, "level", &c.Log.Level, nil, named("debug", "info", "warn", "error")...)
		enum(s, "format", &c.Log.Format, nil, named("text", "json")...)
	}
}

func named(names ...string) []choice[string] {
	out := make([]choice[string], len(names))
	for i, n := range names {
		out[i] = choice[string]{n, n}
	}
	return out
}

// apply lets flags and environment win. flags has no node: its problems carry no line.
func (c *Config) apply(flags value, over Overrides) {
	at := func(path string) value { return value{l: flags.l, path: path} }
	if over.Listen != "" {
		c.Listen.Address = over.Listen
		checkAddress(at("listen"), over.Listen)
	}
	if over.UpstreamTimeout != nil {
		if c.Upstream.Timeout = *over.UpstreamTimeout; c.Upstream.Timeout <= 0 || c.Upstream.Timeout > maxDuration {
			at("upstream.timeout").errorf("", "%s is out of range: more than 0s, at most 24h", c.Upstream.Timeout)
		}
	}
	if over.Dir != "" {
		c.TokenStore.Dir = over.Dir
	}
	if over.MustExist != nil {
		c.TokenStore.MustExist = *over.MustExist
	}
	if over.AdminListen != "" {
		c.Admin.Listen.set(at("admin.listen"), over.AdminListen)
	}
	if over.LeasesListen != "" {
		c.Leases.Listen.set(at("leases.listen"), over.LeasesListen)
	}
	if over.AdminTokenFile != "" {
		c.Admin.TokenFile = over.AdminTokenFile
	}
	for _, o := range []struct {
		path, text string
		dst        *string
		names      []string
	}{
		{"log.level", over.LogLevel, &c.Log.Level, []string{"debug", "info", "warn", "error"}},
		{"log.format", over.LogFormat, &c.Log.Format, []string{"text", "json"}},
	} {
		if o.text != "" && oneOf(at(o.path), o.text, o.names) {
			*o.dst = o.text
		}
	}
}

func oneOf(v value, text string, names []string) bool {
	for _, n := range names {
		if n == text {
			return true
		}
	}
	v.errorf(suggest(text, names), "%q is not one of %s", clip(text), strings.Join(names, ", "))
	return false
}
