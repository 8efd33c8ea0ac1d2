package proxy

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// The names of log attributes.
const (
	keyResource  = "resource"
	keyToken     = "token"
	keyMark      = "mark"
	keyPolicy    = "policy"
	keyOutcome   = "outcome"
	keyForwarded = "forwarded"
	keyStatus    = "status"
	keyMethod    = "method"
	keyPath      = "path"
	keyClient    = "client"
	keyDuration  = "dur"
	keyReason    = "reason"
	keyError     = "error"
)

// decided records what became of a write: one log line, one count, one entry among the last decisions. Bodies, credentials and query
// strings are never recorded: presigned URLs carry signatures.
func (x *exchange) decided(r rejection) {
	policy := ""
	switch {
	case x.decision.Policy != nil:
		policy = x.decision.Policy.Name
	case x.decision.Action == policies.Pass || is[*policies.UnmatchedError](r.err):
		policy = policies.UnmatchedName
	}
	x.p.metrics.writes.WithLabelValues(policy, r.outcome).Inc()
	if limit := limitOf(r.err); limit != "" && r.outcome != statusWouldReject {
		x.p.metrics.limited.WithLabelValues(limit).Inc()
	}
	took := time.Since(x.start)
	d := Decision{
		Time: x.start, Client: x.client(), Method: clip(x.in.Method), Path: clip(x.path()), Policy: policy, Resource: string(r.resource),
		Token: x.shownToken(), Outcome: r.outcome, Status: r.code, Forwarded: r.forwarded, Seconds: took.Seconds(),
	}
	if r.err != nil {
		d.Reason = clip(r.err.Error())
	}
	x.p.decisions.add(d)
	level := slog.LevelInfo
	if r.outcome == statusInDoubt {
		level = slog.LevelWarn
	}
	if r.outcome == statusUnavailable {
		level = slog.LevelError
	}
	x.p.logDecision(level, &d, took)
}

// logDecision writes the line about a decision. The record is built by hand, since slog.Logger would walk the stack for a source that no
// handler of ours shows.
func (p *Proxy) logDecision(level slog.Level, d *Decision, took time.Duration) {
	ctx, h := context.Background(), p.log.Handler()
	if !h.Enabled(ctx, level) {
		return
	}
	status := ""
	if d.Status != 0 {
		status = itoa(d.Status)
	}
	var attrs [11]slog.Attr
	n := 0
	for _, a := range [len(attrs)]struct{ key, value string }{
		{keyOutcome, d.Outcome}, {keyForwarded, d.Forwarded}, {keyStatus, status}, {keyPolicy, d.Policy}, {keyResource, d.Resource},
		{keyToken, d.Token}, {keyMethod, d.Method}, {keyPath, d.Path}, {keyClient, d.Client},
		{keyDuration, took.Round(time.Microsecond).String()}, {keyReason, d.Reason},
	} {
		if a.value != "" {
			attrs[n] = slog.String(a.key, a.value)
			n++
		}
	}
	r := slog.NewRecord(d.Time.Add(took), level, "write", 0)
	r.AddAttrs(attrs[:n]...)
	_ = h.Handle(ctx, r) // as slog.Logger does: there is nobody to tell
}

// unfenced records a write that went by without a token, because its policy says so.
func (x *exchange) unfenced(r rejection) {
	if policies.Safe(x.in.Method) || x.decision.Action != policies.Pass {
		return
	}
	r.outcome, r.resource = statusUnfenced, x.resource()
	x.decided(r)
}

// path is the target without its query.
func (x *exchange) path() string {
	path, _, _ := strings.Cut(x.target, "?")
	if path == "" {
		path, _, _ = strings.Cut(x.in.RequestURI, "?")
	}
	return path
}

// attrs are the attributes of a log line about this request.
func (x *exchange) attrs(more ...any) []any {
	return append([]any{keyResource, string(x.resource()), keyToken, x.shownToken(), keyClient, x.client()}, more...)
}

func itoa(n int) string { return strconv.Itoa(n) }

func lower(s string) string { return strings.ToLower(s) }
