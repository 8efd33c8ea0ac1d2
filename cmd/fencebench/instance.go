package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed conf
var confFS embed.FS

// instance is a peer that runs, or ran.
type instance struct {
	peer    *peer
	lab     *lab
	address string
	dir     string // its configuration, state and logs
	small   bool   // with room for few marks, where that can be set
	procs   []*process
	tokens  int // the last token that was used in raises
}

// values are what the templates see.
type values struct {
	Listen, Upstream, Dir, Modules string
	Cores                          int
	Root, Fence, Stream, Small     bool
}

func (i *instance) values() values {
	return values{
		Listen: i.address, Upstream: i.lab.upstream, Dir: i.dir, Modules: i.lab.modules, Cores: i.lab.cores,
		Root: os.Geteuid() == 0, Fence: i.peer.fence, Stream: i.peer.fence || i.peer.name == nameStream, Small: i.small,
	}
}

// render writes the configuration files of an instance.
func (i *instance) render() error {
	for file, source := range i.peer.files {
		text, err := renderTemplate(source, i.values())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(i.dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func renderTemplate(source string, v values) (string, error) {
	text, err := confFS.ReadFile("conf/" + source)
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(source, ".tmpl") {
		return string(text), nil
	}
	t, err := template.New(source).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, v); err != nil {
		return "", err
	}
	return b.String(), nil
}

// start starts the processes of an instance, on the state of its directory. Without an address, it takes a free one.
func (i *instance) start(ctx context.Context) error {
	if i.peer.commands == nil {
		i.address = i.lab.upstream
		return nil
	}
	fixed := i.address != ""
	for try := 1; ; try++ {
		err := i.tryStart(ctx)
		if err == nil {
			return nil
		}
		i.stop()
		// Between the search for a free port and its use another program can take it.
		if fixed || try == 3 || ctx.Err() != nil {
			return fmt.Errorf("start %s: %w", i.peer.name, err)
		}
		i.address = ""
	}
}

func (i *instance) tryStart(ctx context.Context) (err error) {
	if i.address == "" {
		if i.address, err = freeAddress(); err != nil {
			return err
		}
	}
	if err := i.render(); err != nil {
		return err
	}
	commands := i.peer.commands(i)
	for n, args := range commands {
		p, err := startProcess(args, filepath.Join(i.dir, filepath.Base(args[0])+".log"), i.dir)
		if err != nil {
			return err
		}
		i.procs = append(i.procs, p)
		network, address := "unix", filepath.Join(i.dir, "redis.sock")
		if n == len(commands)-1 {
			network, address = "tcp", i.address
		}
		if err := p.waitListen(ctx, network, address); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) stop() {
	stopProcesses(i.procs)
	i.procs = nil
}

// crash kills the processes and starts them again, on the same state.
func (i *instance) crash(ctx context.Context) error {
	killProcesses(i.procs)
	i.procs = nil
	return i.start(ctx)
}

// tail is the end of the log of the process that listens.
func (i *instance) tail() string {
	if len(i.procs) == 0 {
		return "none"
	}
	return tail(i.procs[len(i.procs)-1].log)
}

func (i *instance) used() (usage, error) {
	var roots []int
	for _, p := range i.procs {
		if p.ended() {
			return usage{}, fmt.Errorf("%s: %s has ended: %s", i.peer.name, p.name, tail(p.log))
		}
		roots = append(roots, p.pid())
	}
	if len(roots) == 0 {
		return usage{}, nil
	}
	return used("/proc", roots)
}
