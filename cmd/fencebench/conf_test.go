package main

import (
	"strings"
	"testing"
)

func TestTemplates(t *testing.T) {
	v := values{Listen: "127.0.0.1:8080", Upstream: "127.0.0.1:9000", Dir: "/tmp/d", Modules: "/usr/lib/m", Cores: 2}
	with := func(change func(*values)) values {
		c := v
		change(&c)
		return c
	}
	fence := with(func(v *values) { v.Fence, v.Stream = true, true })
	small := with(func(v *values) { v.Fence, v.Small = true, true })
	for _, tt := range []struct {
		name, source string
		v            values
		want, not    []string
	}{
		{"nginx", "nginx.conf.tmpl", v,
			[]string{"listen 127.0.0.1:8080 ", "server 127.0.0.1:9000;", "worker_processes 2;", "proxy_request_buffering on;", "pid /tmp/d/nginx.pid;"},
			[]string{"lua", "load_module", "user root"}},
		{"nginx as root", "nginx.conf.tmpl", with(func(v *values) { v.Root = true }), []string{"user root;"}, nil},
		{"nginx streaming", "nginx.conf.tmpl", with(func(v *values) { v.Stream = true }), []string{"proxy_request_buffering off;"}, nil},
		{"nginx with the fence", "nginx.conf.tmpl", fence,
			[]string{"load_module /usr/lib/m/ngx_http_lua_module.so;", "dofile('/tmp/d/fence.lua')", "fence('/tmp/d/redis.sock')", "proxy_request_buffering off;"}, nil},
		{"fence.lua", "fence.lua", v, []string{"function fence(sock)", "evalsha"}, nil},
		{"redis", "redis.conf.tmpl", v, []string{"unixsocket /tmp/d/redis.sock", "appendfsync always"}, []string{"maxmemory"}},
		{"small redis", "redis.conf.tmpl", small, []string{"maxmemory 4mb", "allkeys-lru"}, nil},
		{"haproxy", "haproxy.cfg.tmpl", v, []string{"bind 127.0.0.1:8080", "server s 127.0.0.1:9000 ", "nbthread 2"}, []string{"stick-table"}},
		{"haproxy with the fence", "haproxy.cfg.tmpl", fence, []string{"size 1m store gpt0", "sc-set-gpt0(0)"}, nil},
		{"small haproxy", "haproxy.cfg.tmpl", small, []string{"size 1k store gpt0"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := renderTemplate(tt.source, tt.v)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range tt.want {
				if !strings.Contains(got, s) {
					t.Errorf("got no %q; want it in:\n%s", s, got)
				}
			}
			for _, s := range append(tt.not, "{{", "no value") {
				if strings.Contains(got, s) {
					t.Errorf("got %q; want it nowhere in:\n%s", s, got)
				}
			}
		})
	}
}

func TestEveryPeerHasItsTemplates(t *testing.T) {
	for _, p := range allPeers() {
		for file, source := range p.files {
			if _, err := renderTemplate(source, values{}); err != nil {
				t.Errorf("%s: %s: %v", p.name, file, err)
			}
		}
	}
}
