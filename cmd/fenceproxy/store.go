package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func (s *sidecar) openStore(ctx context.Context) error {
	store, err := tokenstore.Open(ctx, s.cfg.TokenStore.Dir, tokenstore.Options{
		MustExist: s.cfg.TokenStore.MustExist, MinFree: uint64(s.cfg.TokenStore.MinFree), LockWait: s.lockWait, Logger: s.log,
	})
	if err != nil {
		return storeError(err)
	}
	s.store = store
	return nil
}

// storeError adds the next step to an error of the token store.
func storeError(err error) error {
	switch {
	case errors.Is(err, tokenstore.ErrLocked):
		return withHint(err, "one proxy serves one directory; to look at the marks of a running one leave --dir out and use --admin")
	case errors.Is(err, tokenstore.ErrMissing):
		return withHint(err, "mount the right volume; only if this really is a new store start once with --must-exist=false")
	case errors.Is(err, tokenstore.ErrDamaged):
		return withHint(err, "do not delete it: every fence would be open. See tokenstore/README.md, \"When it refuses to start\"")
	}
	if errors.Is(err, fs.ErrPermission) {
		return withHint(err, "name a directory that "+operator()+" may write with --dir, or give this one to that user with mode 0700")
	}
	return err
}

// Names of what the proxy keeps beside the marks.
const (
	metaPolicy = "p/" // + policy name: its key fingerprint
	metaHold   = "max-in-doubt-hold"
)

// recoverFor returns how long writes of the last run may still land, and notes how long those of this run may.
func (s *sidecar) recoverFor() (time.Duration, error) {
	hold := s.cfg.Policies.MaxInDoubtHold()
	text, ok, err := s.store.Meta(metaHold)
	if err != nil {
		return 0, err
	}
	before := time.Duration(0)
	if ok {
		if before, err = time.ParseDuration(text); err != nil {
			return 0, fmt.Errorf("token store: %s: %w", metaHold, err)
		}
	}
	if !s.store.UncleanStop() {
		return 0, s.noteHold(hold)
	}
	// Until the recovery is over, writes of the last run count too.
	hold = max(hold, before)
	return hold, s.noteHold(hold)
}

func (s *sidecar) noteHold(hold time.Duration) error {
	if text, ok, err := s.store.Meta(metaHold); err != nil || ok && text == hold.String() {
		return err
	}
	return s.store.SetMeta(metaHold, hold.String())
}

// checkKeys refuses policies whose resource keys differ from those under which marks are kept, unless accepted, and notes the keys of the
// new ones.
func (s *sidecar) checkKeys(set *policies.Set, accept bool) error {
	prints := set.Fingerprints()
	var changed []string
	for name, print := range prints {
		old, ok, err := s.store.Meta(metaPolicy + name)
		if err != nil {
			return err
		}
		if ok && old != print {
			changed = append(changed, fmt.Sprintf("policy %s\n  was: %s\n  now: %s", name, old, print))
		}
	}
	if len(changed) > 0 && !accept && s.store.Stats().Marks > 0 {
		sort.Strings(changed)
		return withHint(fmt.Errorf("the resource keys of %s changed, so that the marks kept so far would guard nothing and old tokens would be let in:\n%s",
			count(len(changed), "policy"), strings.Join(changed, "\n")),
			"undo the change; if it is meant, stop all writers and start once with --accept-key-change")
	}
	for name, print := range prints {
		if old, ok, err := s.store.Meta(metaPolicy + name); err != nil {
			return err
		} else if ok && old == print {
			continue
		}
		if err := s.store.SetMeta(metaPolicy+name, print); err != nil {
			return err
		}
	}
	return nil
}

// reloadPolicies puts the policies of the file in force. On error nothing is changed.
func (s *sidecar) reloadPolicies() error {
	cfg, err := s.reload()
	if err != nil {
		return err
	}
	if err := s.checkKeys(cfg.Policies, false); err != nil {
		return err
	}
	if hold := cfg.Policies.MaxInDoubtHold(); hold > s.cfg.Policies.MaxInDoubtHold() {
		if err := s.noteHold(hold); err != nil {
			return err
		}
	}
	for _, w := range cfg.Warnings() {
		s.log.Warn("reload", "warning", w.String())
	}
	for _, name := range s.fixed(cfg) {
		s.log.Warn("reload: this setting needs a restart; the old value stays", "setting", name)
	}
	s.proxy.SetPolicies(cfg.Policies)
	s.log.Info("reloaded the policies", "policies", len(cfg.Policies.Policies()))
	return nil
}

// fixed lists the settings that differ in cfg and that a reload does not change.
func (s *sidecar) fixed(cfg *policies.Config) []string {
	var names []string
	for name, differs := range map[string]bool{
		"listen":      cfg.Listen.Address != s.cfg.Listen.Address || (cfg.Listen.TLS == nil) != (s.cfg.Listen.TLS == nil),
		"upstream":    cfg.Upstream.String() != s.cfg.Upstream.String() || cfg.Upstream.Timeout != s.cfg.Upstream.Timeout || cfg.Upstream.PreserveHost != s.cfg.Upstream.PreserveHost,
		"token_store": cfg.TokenStore != s.cfg.TokenStore,
		"admin":       cfg.Admin != s.cfg.Admin,
		"spool":       cfg.Spool != s.cfg.Spool,
		"log":         cfg.Log != s.cfg.Log,
	} {
		if differs {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// timedStore measures how long marks take to become durable.
type timedStore struct {
	*tokenstore.Store
	observe func(seconds float64)
}

func (t *timedStore) Advance(ms []fencing.ResourceMark) error {
	start := time.Now()
	err := t.Store.Advance(ms)
	t.observe(time.Since(start).Seconds())
	return err
}
