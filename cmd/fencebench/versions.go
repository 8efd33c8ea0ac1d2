package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is a program and what it says of itself.
type version struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// machine is where a run took place.
type machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Load   string `json:"load"` // average of the last minutes, at the start
}

func thisMachine() machine {
	return machine{Kernel: kernel(), CPU: cpuModel("/proc/cpuinfo"), Cores: runtime.NumCPU(), Load: loadAverage("/proc/loadavg")}
}

func cpuModel(file string) string {
	b, _ := os.ReadFile(file)
	if m := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return runtime.GOARCH
}

func loadAverage(file string) string {
	b, _ := os.ReadFile(file)
	if f := strings.Fields(string(b)); len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

func versions(ctx context.Context, l *lab) []version {
	return []version{
		{"fenceproxy", firstMatch(ctx, `fenceproxy (?:version )?(.+)`, l.fenceproxy, "--version")},
		{"nginx", firstMatch(ctx, `nginx/(\S+)`, lookup("nginx"), "-v")},
		{"haproxy", firstMatch(ctx, `version (\S+)`, lookup("haproxy"), "-v")},
		{"redis-server", firstMatch(ctx, `v=(\S+)`, lookup("redis-server"), "-v")},
		{"go", goVersion()},
	}
}

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return strings.TrimPrefix(info.GoVersion, "go")
	}
	return strings.TrimPrefix(runtime.Version(), "go")
}

// badgerVersion is that of the library which this program, like fenceproxy, is linked with.
func badgerVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if strings.HasPrefix(dep.Path, "github.com/dgraph-io/badger/") {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// firstMatch is the first group of a pattern in what a command prints.
func firstMatch(ctx context.Context, pattern, program string, args ...string) string {
	if program == "" {
		return "not installed"
	}
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	m := regexp.MustCompile(pattern).FindSubmatch(out)
	if err != nil || m == nil {
		return "unknown"
	}
	return strings.TrimSpace(string(m[1]))
}

// commandLine is how the run was started, in a form that can be repeated.
func commandLine(o *options) string {
	words := []string{"go run ./cmd/fencebench"}
	for _, a := range o.args {
		if a == "" || strings.ContainsAny(a, " '\"$") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		if filepath.IsAbs(a) {
			a = filepath.Base(a)
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
