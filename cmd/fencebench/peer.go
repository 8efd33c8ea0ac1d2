package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// peer is one way to stand in front of the store. Its functions get the instance that they are to start.
type peer struct {
	name  string
	what  string // for the reports
	fence bool   // it checks tokens
	few   bool   // measured only in the workloads where it differs from its neighbour
	needs func(*lab) (missing string)
	files map[string]string // file of an instance -> template
	// commands start the instance, the one that listens last. Empty for the store itself.
	commands func(*instance) [][]string
}

// Names of peers that reports and workloads refer to.
const (
	nameDirect = "direct"
	nameNginx  = "nginx"
	nameStream = "nginx-streaming"
	namePlain  = "httputil"
	nameRedis  = "nginx+lua+redis"
	nameStick  = "haproxy+stick"
	nameOurs   = "fenceproxy"
)

func allPeers() []*peer {
	return []*peer{
		{name: nameDirect, what: "no proxy"},
		{name: nameNginx, what: "proxy_pass alone, with its default request buffering", needs: program("nginx"),
			files: map[string]string{"nginx.conf": "nginx.conf.tmpl"}, commands: nginxCommands},
		{name: nameStream, what: "the same with proxy_request_buffering off", few: true, needs: program("nginx"),
			files: map[string]string{"nginx.conf": "nginx.conf.tmpl"}, commands: nginxCommands},
		{name: "haproxy", what: "forwarding alone", needs: program("haproxy"),
			files: map[string]string{"haproxy.cfg": "haproxy.cfg.tmpl"}, commands: haproxyCommands},
		{name: namePlain, what: "Go's ReverseProxy, tuned, forwarding alone",
			commands: func(i *instance) [][]string {
				return [][]string{{i.lab.self, "plain-proxy", "--listen", i.address, "--upstream", "http://" + i.lab.upstream}}
			}},
		{name: nameRedis, what: "the fence that one would build: nginx, Lua, compare-and-set in Redis, appendfsync always", fence: true, needs: needsLuaRedis,
			files:    map[string]string{"nginx.conf": "nginx.conf.tmpl", "fence.lua": "fence.lua", "redis.conf": "redis.conf.tmpl"},
			commands: luaRedisCommands},
		{name: nameStick, what: "the same in HAProxy: highest token in a stick table, in memory", fence: true, needs: program("haproxy"),
			files: map[string]string{"haproxy.cfg": "haproxy.cfg.tmpl"}, commands: haproxyCommands},
		{name: nameOurs, what: "as shipped: marks on disk, a log line a write", fence: true,
			commands: func(i *instance) [][]string {
				return [][]string{{i.lab.fenceproxy, "serve", "--upstream", "http://" + i.lab.upstream, "--listen", i.address,
					"--dir", filepath.Join(i.dir, "marks"), "--admin-listen", "off"}}
			}},
	}
}

func peerNames() []string {
	var names []string
	for _, p := range allPeers() {
		names = append(names, p.name)
	}
	return names
}

func nginxCommands(i *instance) [][]string {
	return [][]string{{lookup("nginx"), "-p", i.dir, "-e", filepath.Join(i.dir, "error.log"), "-c", filepath.Join(i.dir, "nginx.conf")}}
}

func haproxyCommands(i *instance) [][]string {
	return [][]string{{lookup("haproxy"), "-db", "-f", filepath.Join(i.dir, "haproxy.cfg")}}
}

func luaRedisCommands(i *instance) [][]string {
	return append([][]string{{lookup("redis-server"), filepath.Join(i.dir, "redis.conf")}}, nginxCommands(i)...)
}

// program is the need for a program.
func program(name string) func(*lab) string {
	return func(*lab) string {
		if lookup(name) == "" {
			return fmt.Sprintf("%s is not installed: apt-get install %s", name, debianPackage(name))
		}
		return ""
	}
}

func debianPackage(program string) string {
	if program == "nginx" {
		return "nginx-light"
	}
	return program
}

func needsLuaRedis(l *lab) string {
	for _, p := range []string{"nginx", "redis-server"} {
		if missing := program(p)(l); missing != "" {
			return missing
		}
	}
	for file, pkg := range map[string]string{
		filepath.Join(l.modules, "ngx_http_lua_module.so"): "libnginx-mod-http-lua",
		"/usr/share/lua/5.1/nginx/redis.lua":               "lua-nginx-redis",
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Sprintf("%s is not there: apt-get install %s", file, pkg)
		}
	}
	return ""
}

// lookup finds a program, also where servers are and the PATH of a user is not. It is "" without one.
func lookup(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p
		}
	}
	return ""
}
