package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	startWait = 15 * time.Second // for a process to open its port
	stopWait  = 4 * time.Second  // for one to end by itself
)

// process is a running program.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed by the goroutine that waits for the process
}

// startProcess starts a program with its output in a file. tmp is its directory for temporary files.
func startProcess(args []string, log, tmp string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{name: filepath.Base(args[0]), cmd: cmd, log: log, done: make(chan struct{})}
	go func() { // ends with the process
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitListen waits until something accepts connections on an address.
func (p *process) waitListen(ctx context.Context, network, address string) error {
	deadline := time.Now().Add(startWait)
	for {
		if c, err := net.DialTimeout(network, address, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once: %s", p.name, tail(p.log))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not listen on %s after %s: %s", p.name, address, startWait, tail(p.log))
		}
	}
}

// stopProcesses asks processes to end, waits, and kills what is left of them and of their descendants, each by its pid.
func stopProcesses(procs []*process) {
	var roots []int
	for _, p := range procs {
		if !p.ended() {
			roots = append(roots, p.pid())
		}
	}
	left := familyNow(roots)
	for _, p := range procs {
		if !p.ended() {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	deadline := time.After(stopWait)
	for _, p := range procs {
		select {
		case <-p.done:
		case <-deadline:
			kill(left)
			for _, p := range procs {
				<-p.done
			}
			return
		}
	}
}

// killProcesses kills processes and their descendants without a chance to save anything: a crash.
func killProcesses(procs []*process) {
	var roots []int
	for _, p := range procs {
		if !p.ended() {
			roots = append(roots, p.pid())
		}
	}
	kill(familyNow(roots))
	for _, p := range procs {
		<-p.done
	}
}

func familyNow(roots []int) []int {
	procs, err := snapshot("/proc")
	if err != nil {
		return roots
	}
	return family(procs, roots)
}

func kill(pids []int) {
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // or it has just ended
		}
	}
}

// tail is the end of a log, for an error message.
func tail(file string) string {
	const most = 600
	b, err := os.ReadFile(file)
	if err != nil || len(b) == 0 {
		return "it logged nothing"
	}
	return string(b[max(0, len(b)-most):])
}

// freeAddress is an address of 127.0.0.1 that nothing listens on just now.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
