package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/urfave/cli/v2"
)

// statusError ends the process with the code of another one, which has said what there is to say.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

const exitNoCommand = 127 // as shells do

// passedOn are the signals that the command of "lease run" gets too. What this process was told to ignore (nohup) stays ignored.
func passedOn() []os.Signal {
	all := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
	return slices.DeleteFunc(all, signal.Ignored)
}

func leaseRun(c *cli.Context) error {
	args, err := arguments(c)
	if err != nil {
		return err
	}
	if len(args) < 2 || args[0] == "" || !slices.Contains(c.Args().Slice(), "--") {
		return withHint(usagef("lease run takes NAME -- COMMAND, and got %s", count(len(args), "argument")), "fenceproxy lease run rides/7 --ttl 30s -- ./backup.sh --full")
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		fmt.Fprintf(c.App.ErrWriter, "fenceproxy: error: %v\n", err)
		return &statusError{exitNoCommand}
	}
	l, err := newLeaseClient(c)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	defer signal.Stop(signals)
	h := &leaseHolder{client: l, name: args[0], ttl: c.Duration("ttl")}
	if err := h.take(c, signals); err != nil {
		return err
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Args[0] = args[1]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.App.Reader, c.App.Writer, c.App.ErrWriter
	cmd.Env = append(os.Environ(), "FENCING_TOKEN="+h.token, "FENCING_RESOURCE="+h.name)
	r := &leasedRun{cmd: cmd, grace: c.Duration("grace"), terminal: onTerminal(c.App.Reader)}
	// A group of its own, so that its children hear of a lost lease too. On a terminal it stays in ours, or it could not read from that.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !r.terminal}
	lost, err := r.run(c.Context, h, signals)
	switch {
	case lost != nil:
		return fmt.Errorf("the lease on %q was lost, so the command was stopped: %w", h.name, lost)
	case err != nil:
		h.give(c.App.ErrWriter)
		return err
	}
	h.give(c.App.ErrWriter)
	if code := exitCode(cmd.ProcessState); code != 0 {
		return &statusError{code}
	}
	return nil
}

// exitCode is the code with which a shell would end.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// onTerminal reports whether r is the terminal that controls this process.
func onTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return errno == 0
}

// leaseHolder holds a lease.
type leaseHolder struct {
	client              *leaseClient
	name, token, secret string
	ttl                 time.Duration
	confirmed           time.Time // when the request was sent that the proxy has confirmed last: the lease lasts for ttl from then, at least
}

// take acquires the lease. A signal ends the wait for it.
func (h *leaseHolder) take(c *cli.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(c.Context)
	told := make(chan os.Signal, 1) // gets a signal, if one comes, and is closed by the goroutine
	go func() {                     // ends with ctx; it is waited for, or it could swallow a signal that is the command's
		defer close(told)
		select {
		case <-ctx.Done():
		case sig := <-signals:
			told <- sig
			cancel()
		}
	}()
	sent := time.Now()
	g, err := h.client.acquire(ctx, h.name, h.ttl, c.Duration("wait"), ownerOf(c))
	if err == nil {
		h.token, h.secret, h.confirmed = g.Token, g.Secret, sent
		if time.Since(sent) > h.ttl/3 { // after a wait nobody knows here when it was granted
			err = h.renewOnce(ctx)
		}
	}
	cancel()
	if sig, ok := <-told; ok {
		if h.secret != "" {
			h.give(c.App.ErrWriter)
		}
		number, _ := sig.(syscall.Signal)
		return &statusError{128 + int(number)}
	}
	return leaseHint(err)
}

func (h *leaseHolder) deadline() time.Time { return h.confirmed.Add(h.ttl) }

func (h *leaseHolder) renewOnce(ctx context.Context) error {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := h.client.renew(ctx, h.name, h.secret)
	if err == nil {
		h.confirmed = sent
	}
	return err
}

// keep renews the lease until ctx ends, and then returns nil; or until it is lost, and then returns why.
func (h *leaseHolder) keep(ctx context.Context) error {
	last := errors.New("it was not renewed by the end of its time")
	for next := h.confirmed.Add(h.ttl / 3); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
		if !time.Now().Before(h.deadline()) { // this process was paused, or nobody answered
			return last
		}
		attempt, cancel := context.WithDeadline(ctx, h.deadline())
		err := h.renewOnce(attempt)
		cancel()
		refusal, refused := errors.AsType[*leaseRefusal](err)
		switch {
		case err == nil:
			next = h.confirmed.Add(h.ttl / 3)
		case refused && refusal.final():
			return err
		default: // the proxy may be away for a moment: a restart does not end a lease
			last = fmt.Errorf("it was not renewed by the end of its time: %w", err)
			next = time.Now().Add(min(time.Second, h.ttl/10))
			if next.After(h.deadline()) {
				next = h.deadline()
			}
		}
	}
}

// give releases the lease, as far as that is possible.
func (h *leaseHolder) give(stderr io.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := h.client.release(ctx, h.name, h.secret); err != nil {
		fmt.Fprintf(stderr, "fenceproxy: warning: the lease on %q was not released: %v\n", h.name, err)
	}
}

// outcome is how something ended.
type outcome struct{ err error }

// leasedRun is a command under a lease.
type leasedRun struct {
	cmd      *exec.Cmd
	grace    time.Duration
	terminal bool // the command shares our process group
}

// run runs the command. lost says why the lease was lost, if it was; err, why the command did not run.
func (r *leasedRun) run(ctx context.Context, h *leaseHolder, signals <-chan os.Signal) (lost, err error) {
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan outcome, 1)
	go func() { ended <- outcome{r.cmd.Wait()} }() // ends with the command
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	kept := make(chan outcome, 1)
	go func() { kept <- outcome{h.keep(keeping)} }() // ends with keeping
	for {
		select {
		case how := <-ended:
			stop()
			<-kept // a lease that is lost at this very moment: the command has ended
			return nil, waitError(how.err)
		case sig := <-signals:
			r.pass(sig)
		case why := <-kept:
			if why.err == nil { // ctx has ended
				why.err = ctx.Err()
			}
			r.end(ended)
			return why.err, nil
		}
	}
}

// waitError drops what the exit code says too.
func waitError(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// end has the command end, in order if it can.
func (r *leasedRun) end(ended <-chan outcome) {
	r.signal(syscall.SIGTERM)
	r.signal(syscall.SIGCONT) // a stopped one would not hear it
	select {
	case <-ended: // how, does not matter any more
	case <-time.After(r.grace):
		r.signal(syscall.SIGKILL)
		<-ended
	}
}

// pass passes a signal on. What is typed on a terminal reaches the command by itself.
func (r *leasedRun) pass(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok && (!r.terminal || number != syscall.SIGINT && number != syscall.SIGQUIT) {
		r.signal(number)
	}
}

// signal reaches the command and its children; on a terminal, the command.
func (r *leasedRun) signal(number syscall.Signal) {
	pid := r.cmd.Process.Pid
	if !r.terminal {
		pid = -pid
	}
	_ = syscall.Kill(pid, number) // it may have ended
}
