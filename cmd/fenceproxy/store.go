package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func (s *sidecar) openStore(ctx context.Context) error {
	store, err := tokenstore.Open(ctx, s.cfg.TokenStore.Dir, tokenstore.Options{
		MustExist: s.cfg.TokenStore.MustExist, MinFree: uint64(s.cfg.TokenStore.MinFree), MaxMarks: uint64(s.cfg.TokenStore.MaxResources),
		LockWait: s.lockWait, Logger: s.log,
	})
	if err != nil {
		return storeError(s.cfg.TokenStore.Dir, err)
	}
	s.store = store
	return nil
}

// storeError adds the next step to an error of the token store in dir.
func storeError(dir string, err error) error {
	switch {
	case errors.Is(err, tokenstore.ErrLocked):
		return withHint(err, "one proxy serves one directory; to look at the marks of a running one leave --dir out and use --admin")
	case errors.Is(err, tokenstore.ErrMissing):
		return withHint(err, "mount the right volume; only if this really is a new store start once with --must-exist=false")
	case errors.Is(err, tokenstore.ErrDamaged):
		return withHint(err, "do not delete it: every fence would be open. See tokenstore/README.md, \"When it refuses to start\"")
	}
	info, serr := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrPermission) && serr != nil:
		return withHint(err, fmt.Sprintf("%s cannot be made by user %s: make it and chown it to that user, or name another with --dir DIR", dir, userName()))
	case errors.Is(err, fs.ErrPermission):
		return withHint(err, fmt.Sprintf("%s cannot be opened by user %s: chown it to that user, or name another with --dir DIR", dir, userName()))
	case errors.Is(err, syscall.EROFS):
		return withHint(err, fmt.Sprintf("%s is mounted read-only, and a token store is locked by writing to it: mount it for writing, or name another with --dir DIR", dir))
	case serr == nil && !info.IsDir():
		return withHint(err, "name a directory with --dir")
	}
	return err
}

// Names of what the proxy keeps beside the marks.
const (
	metaPolicy = "p/"         // + policy name: its key fingerprint
	metaSample = "s/"         // + policy name: a request and its keys
	metaStore  = "authority/" // + a way to a store: what begins its keys
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
		s.hold = hold
		return 0, s.noteHold(hold)
	}
	// Until the recovery is over, writes of the last run count too.
	s.hold = max(hold, before)
	return s.hold, s.noteHold(s.hold)
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
	changed := map[string]string{} // by policy
	for name, print := range prints {
		old, ok, err := s.store.Meta(metaPolicy + name)
		if err != nil {
			return err
		}
		if ok && old != print {
			changed[name] = old
		}
	}
	moved, err := s.movedKeys(set)
	if err != nil {
		return err
	}
	ways := set.Authorities()
	renamed := map[string]string{} // by the way to the store
	for way, authority := range ways {
		old, ok, err := s.store.Meta(metaStore + way)
		if err != nil {
			return err
		}
		if ok && old != authority {
			renamed[way] = old
		}
	}
	if len(changed)+len(moved)+len(renamed) > 0 && s.store.Stats().Marks > 0 {
		var list strings.Builder
		for _, way := range slices.Sorted(maps.Keys(renamed)) {
			was, now := renamed[way], ways[way]
			if accept {
				s.log.Warn("the keys of a store begin with another authority, and its marks begin anew: --accept-key-change", "store", way, "was", was, "now", now)
			}
			fmt.Fprintf(&list, "\n%s\n  was: authority %s\n  now: authority %s", way, was, now)
		}
		for _, m := range moved {
			if accept {
				s.log.Warn("requests get other resource keys, and their marks begin anew: --accept-key-change", "request", m.request, "was", m.was, "now", m.now)
			}
			fmt.Fprintf(&list, "\nrequests such as %s\n  was: resource %s\n  now: resource %s", m.request, m.was, m.now)
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			was, now := keyDifference(changed[name], prints[name])
			if accept {
				s.log.Warn("the resource keys of a policy changed, and its marks begin anew: --accept-key-change", "policy", name, "was", was, "now", now)
			}
			fmt.Fprintf(&list, "\npolicy %s\n  was: %s\n  now: %s", name, was, now)
		}
		if !accept {
			return withHint(fmt.Errorf("resource keys changed, so that marks kept so far would guard nothing and old tokens would be let in:%s", list.String()),
				"undo the change; if it is meant, stop all writers and start once with --accept-key-change")
		}
	}
	if err := s.noteAll(metaPolicy, prints); err != nil {
		return err
	}
	if err := s.noteAll(metaStore, ways); err != nil {
		return err
	}
	return s.noteSamples(set, len(moved) > 0)
}

// noteAll keeps notes beside the marks, as far as they differ from those there.
func (s *sidecar) noteAll(prefix string, notes map[string]string) error {
	for name, text := range notes {
		if old, ok, err := s.store.Meta(prefix + name); err != nil {
			return err
		} else if ok && old == text {
			continue
		}
		if err := s.store.SetMeta(prefix+name, text); err != nil {
			return err
		}
	}
	return nil
}

// keyDifference returns the parts of two fingerprints that differ: most of what they hold is what the policies have in common.
func keyDifference(old, now string) (was, is string) {
	only := func(parts, others []string) string {
		parts = slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return slices.Contains(others, p) })
		for i, p := range parts {
			if strings.HasSuffix(p, "=") {
				parts[i] = p + "(none)"
			}
		}
		return cmp.Or(strings.Join(parts, "; "), "(none)")
	}
	a, b := keyParts(old), keyParts(now)
	return only(a, b), only(b, a)
}

// keyParts splits a fingerprint into the resource, the order and each option of the identity.
func keyParts(print string) []string {
	head, options := print, ""
	if i := strings.LastIndex(print, "; dot_segments="); i >= 0 {
		head, options = print[:i], print[i+2:]
	}
	parts := []string{head}
	if i := strings.LastIndex(head, "; order "); i >= 0 { // from the end: a resource may hold any text
		parts = []string{head[:i], head[i+2:]}
	}
	return append(parts, strings.Fields(options)...)
}

// reloadPolicies puts the policies of the file in force. On error nothing is changed.
func (s *sidecar) reloadPolicies() error {
	cfg, err := s.reload()
	if err != nil {
		return err
	}
	cfg.Policies.KeepStores(s.cfg.Policies)
	if err := s.checkEpochs(cfg.Policies); err != nil {
		return err
	}
	if err := s.checkKeys(cfg.Policies, false); err != nil {
		return err
	}
	// It only grows: requests under way keep the policies with which they came.
	if hold := cfg.Policies.MaxInDoubtHold(); hold > s.hold {
		if err := s.noteHold(hold); err != nil {
			return err
		}
		s.hold = hold
	}
	if err := s.noteEpochs(cfg.Policies); err != nil {
		return err
	}
	for _, w := range cfg.Warnings() {
		s.log.Warn("reload", "warning", w.String())
	}
	for _, name := range s.fixed(cfg) {
		s.log.Warn("reload: this setting needs a restart; the old value stays", "setting", name)
	}
	s.proxy.SetPolicies(cfg.Policies)
	n := len(cfg.Policies.Policies())
	if cfg.Policies.Unmatched() != nil { // the built-in one
		n++
	}
	s.log.Info("reloaded the policies", "policies", n)
	return nil
}

// fixed lists the settings that differ in cfg and that a reload does not change.
func (s *sidecar) fixed(cfg *policies.Config) []string {
	var names []string
	for name, differs := range map[string]bool{
		"listen":      !reflect.DeepEqual(cfg.Listen, s.cfg.Listen),
		"upstream":    !reflect.DeepEqual(cfg.Upstream, s.cfg.Upstream),
		"token_store": cfg.TokenStore != s.cfg.TokenStore,
		"admin":       !reflect.DeepEqual(cfg.Admin, s.cfg.Admin),
		"leases":      !reflect.DeepEqual(cfg.Leases, s.cfg.Leases),
		"forward":     !reflect.DeepEqual(cfg.Forward, s.cfg.Forward),
		"spool":       cfg.Spool != s.cfg.Spool,
		"limits":      cfg.Limits != s.cfg.Limits,
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
