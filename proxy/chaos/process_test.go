package chaos_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is a child process whose output is read line by line.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines func(string) // gets each line of stdout
	ended chan struct{}
	err   error // how it ended, once ended is closed

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// start starts cmd and sends its output, and what it says on stderr, where it can be found.
func start(cmd *exec.Cmd, lines func(string)) (*process, error) {
	p := &process{cmd: cmd, lines: lines, ended: make(chan struct{})}
	cmd.Stderr = p
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	nurse.say("born %d", cmd.Process.Pid)
	go func() { // ends when the process does, or closes its output
		in := bufio.NewScanner(stdout)
		for in.Scan() {
			lines(in.Text())
		}
		p.err = cmd.Wait()
		nurse.say("gone %d", cmd.Process.Pid)
		close(p.ended)
	}()
	return p, nil
}

// Write takes the process's stderr.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may be gone

// kill ends the process with SIGKILL, whatever state it is in.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// wait waits for the end. The error says how the process ended if not with 0.
func (p *process) wait(d time.Duration) error {
	select {
	case <-p.ended:
		return p.err
	case <-time.After(d):
		return fmt.Errorf("process %d has not ended after %v", p.cmd.Process.Pid, d)
	}
}
