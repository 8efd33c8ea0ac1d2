package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// lab is what all peers of a run share: the store, and a directory.
type lab struct {
	dir        string
	self       string // this binary
	fenceproxy string
	modules    string // directory of nginx's modules
	cores      int
	upstream   string // address of the store
	store      *process
	instances  []*instance
	started    int
}

// newLab makes the directory, finds or builds the programs and starts the store. The caller calls close, also after an error.
func newLab(ctx context.Context, o *options) (*lab, error) {
	l := &lab{cores: runtime.NumCPU()}
	var err error
	if l.dir, err = workDir(o.dir); err != nil {
		return l, err
	}
	if l.self = o.self; l.self == "" {
		l.self, err = os.Executable()
	}
	if err != nil {
		return l, err
	}
	l.modules = nginxModules(ctx)
	if l.fenceproxy, err = l.findFenceproxy(ctx, o.fenceproxy); err != nil {
		return l, err
	}
	if l.upstream, err = freeAddress(); err != nil {
		return l, err
	}
	if l.store, err = startProcess([]string{l.self, "upstream", "--listen", l.upstream}, filepath.Join(l.dir, "upstream.log"), l.dir); err != nil {
		return l, err
	}
	return l, l.store.waitListen(ctx, "tcp", l.upstream)
}

// workDir makes the directory of a run. It must be on a disk: a mark that is synced to memory costs nothing.
func workDir(parent string) (string, error) {
	if parent != "" {
		return os.MkdirTemp(parent, "fencebench-")
	}
	for _, parent := range []string{os.TempDir(), "/var/tmp"} {
		if !inMemory(parent) {
			return os.MkdirTemp(parent, "fencebench-")
		}
	}
	return "", fmt.Errorf("%s and /var/tmp are in memory, where a sync costs nothing: name a directory on a disk with --dir", os.TempDir())
}

func (l *lab) findFenceproxy(ctx context.Context, binary string) (string, error) {
	if binary != "" {
		path, err := exec.LookPath(binary)
		if err != nil {
			return "", fmt.Errorf("--fenceproxy: %w: name an executable, for example after make build", err)
		}
		return filepath.Abs(path)
	}
	path := filepath.Join(l.dir, "fenceproxy")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fenceproxy: %w: run inside the module, or name a binary with --fenceproxy\n%s", err, out)
	}
	return path, nil
}

// startPeers starts the chosen peers. missing has one line for each that is not installed.
func (l *lab) startPeers(ctx context.Context, chosen func(*peer) bool, requireAll bool) (missing map[string]string, err error) {
	missing = map[string]string{}
	for _, p := range allPeers() {
		if !chosen(p) {
			continue
		}
		if p.needs != nil {
			if why := p.needs(l); why != "" {
				missing[p.name] = why
				continue
			}
		}
		i, err := l.newInstance(p)
		if err != nil {
			return missing, err
		}
		if err := i.start(ctx); err != nil {
			return missing, err
		}
		l.instances = append(l.instances, i)
	}
	if requireAll && len(missing) > 0 {
		var all []error
		for name, why := range missing {
			all = append(all, fmt.Errorf("%s: %s", name, why))
		}
		return missing, fmt.Errorf("--require-all: %w", errors.Join(all...))
	}
	return missing, nil
}

func (l *lab) newInstance(p *peer) (*instance, error) {
	l.started++
	dir := filepath.Join(l.dir, fmt.Sprintf("%d-%s", l.started, p.name))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return &instance{peer: p, lab: l, dir: dir, tokens: firstToken}, nil
}

// close ends everything and removes the directory.
func (l *lab) close() {
	var procs []*process
	for _, i := range l.instances {
		procs = append(procs, i.procs...)
	}
	if l.store != nil {
		procs = append(procs, l.store)
	}
	stopProcesses(procs)
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
	}
}

var modulesPath = regexp.MustCompile(`--modules-path=(\S+)`)

func nginxModules(ctx context.Context) string {
	const usual = "/usr/lib/nginx/modules"
	nginx := lookup("nginx")
	if nginx == "" {
		return usual
	}
	out, err := exec.CommandContext(ctx, nginx, "-V").CombinedOutput()
	if m := modulesPath.FindSubmatch(out); err == nil && m != nil {
		return strings.TrimSpace(string(m[1]))
	}
	return usual
}
