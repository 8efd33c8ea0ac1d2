package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// newLogger returns a logger that writes to w, and a function to be called before the process ends. Lines below warning may wait for a
// moment to leave together, since a system call for each would be a tenth of what a write costs; from warning up a line leaves at
// once, and with it what waited.
func newLogger(w io.Writer, l policies.Log) (*slog.Logger, func()) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo
	}
	lines := &lineBuffer{w: w}
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(lines, opts)
	if l.Format == "json" {
		h = slog.NewJSONHandler(lines, opts)
	}
	return slog.New(&promptHandler{h, lines}), lines.flush
}

// Bounds on how much and how long log lines wait.
const (
	logBytes = 16 << 10
	logDelay = 100 * time.Millisecond
)

// lineBuffer gathers log lines.
type lineBuffer struct {
	w io.Writer

	mu sync.Mutex // guards the fields below; held while lines are written, so that they stay in order
	// +checklocks:mu
	buf []byte
	// +checklocks:mu
	timed bool // a flush is due
}

// Write implements [io.Writer]. It gets whole lines from slog and never fails: there is nobody to tell.
func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	switch {
	case len(b.buf) >= logBytes:
		b.flushLocked()
	case !b.timed:
		b.timed = true
		time.AfterFunc(logDelay, b.flush)
	}
	return len(p), nil
}

func (b *lineBuffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timed = false
	b.flushLocked()
}

// +checklocks:b.mu
func (b *lineBuffer) flushLocked() {
	if len(b.buf) > 0 {
		_, _ = b.w.Write(b.buf) // there is nobody to tell
		b.buf = b.buf[:0]
	}
}

// promptHandler has warnings and errors leave at once.
type promptHandler struct {
	slog.Handler
	lines *lineBuffer
}

// Handle implements [slog.Handler].
func (h *promptHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.lines.flush()
	}
	return err
}

// WithAttrs implements [slog.Handler].
func (h *promptHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &promptHandler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements [slog.Handler].
func (h *promptHandler) WithGroup(name string) slog.Handler {
	return &promptHandler{h.Handler.WithGroup(name), h.lines}
}
