package policies

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/policies/signed"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// settings are the keys that defaults and a policy share. A policy starts from a copy of the defaults; lists are replaced whole,
// never changed in place.
type settings struct {
	mode        Mode
	missing     MissingToken
	compare     Compare
	places      []place
	format      fencing.Format
	limits      fencing.Limits
	epoch       uint32
	hold        HoldTerms
	release     value // hold.release of the section read last; without a node if it has none
	drain       time.Duration
	inDoubt     time.Duration
	settle      time.Duration
	serial      bool
	stream      bool
	revertOn    []int
	evidence    evidence
	staleStatus int // 0: that of the dialect
	revealMark  bool
	dialect     dialect.Name
	identity    identity
	subtree     bool
	abortFree   bool
	uploadToken bool
	signedToken bool
	verifier    *signed.Verifier // token.signed; nil: tokens are bare
	signedKeys  string           // its algorithm and files
	honours     bool
	maxBatch    int
	maxBody     int64
	allow       []string // nil: everybody
}

func defaultSettings() settings {
	return settings{
		mode: Enforce, missing: MissingReject, compare: AtLeast,
		places: []place{newPlace(placeHeader, "Fencing-Token", nil), newPlace(placeHeader, "X-Fencing-Token", nil)},
		format: fencing.Decimal, limits: fencing.Decimal.DefaultLimits(),
		drain: 30 * time.Second, inDoubt: 10 * time.Second,
		revertOn: []int{401, 403}, dialect: dialect.HTTP, identity: preset(dialect.HTTP), maxBatch: 1000,
	}
}

var settingKeys = []string{
	"mode", "missing_token", "compare", "token", "epoch", "hold", "drain_timeout", "in_doubt_hold", "settle", "same_token", "request_body",
	"revert_on", "revert_unsent", "stale_status", "reveal_mark", "dialect", "identity", "collections", "abort", "upload_token", "require_signed_token",
	"method_override", "max_batch", "max_body", "allow",
}

func (o *settings) decode(s section) {
	enum(s, "mode", &o.mode, nil, choice[Mode]{"enforce", Enforce}, choice[Mode]{"observe", Observe}, choice[Mode]{"off", Off})
	enum(s, "missing_token", &o.missing, nil, choice[MissingToken]{"reject", MissingReject}, choice[MissingToken]{"allow", MissingAllow})
	enum(s, "compare", &o.compare, nil, choice[Compare]{"at-least", AtLeast}, choice[Compare]{"greater", Greater}, choice[Compare]{"hold", Hold})
	if v, ok := s.keys["epoch"]; ok {
		if n, ok := v.integer(); ok {
			if n > MaxEpoch {
				v.errorf("count up by one each time", "%d is out of range: 0 to %d", n, MaxEpoch)
			} else {
				o.epoch = uint32(n)
			}
		}
	}
	s.duration("drain_timeout", &o.drain, true)
	s.duration("in_doubt_hold", &o.inDoubt, true)
	s.duration("settle", &o.settle, true)
	if s.has("in_doubt_hold") && o.inDoubt == 0 {
		s.at("in_doubt_hold").warnf("set it to the longest time that the store may go on with a write whose connection is gone",
			"a write whose connection was cut can land after one with a higher token")
	}
	enum(s, "same_token", &o.serial, nil, choice[bool]{"concurrent", false}, choice[bool]{"serial", true})
	if s.has("same_token") && s.has("compare") && o.compare == Greater {
		s.at("same_token").errorf("", "it has no effect: with compare: greater no two writes carry the same token")
	}
	enum(s, "request_body", &o.stream, nil, choice[bool]{"spool", false}, choice[bool]{"stream", true})
	s.flag("reveal_mark", &o.revealMark)
	o.decodeDialect(s)
	o.decodeMaxBody(s)
	o.decodeAllow(s)
	o.decodeStatuses(s)
	o.decodeRevertUnsent(s)
	o.decodeToken(s)
	o.decodeHold(s)
	o.decodeIdentity(s)
}

// MaxEpoch is the highest epoch that a policy can name.
const MaxEpoch = 65535

// maxBatch bounds max_batch: the marks of one write are made durable together.
const maxBatch = 1000

// retriedStatuses are 4xx codes that clients take for something else than a final refusal: they log in again, retry, or cache.
var retriedStatuses = []int{401, 403, 404, 405, 408, 410, 414, 423, 425, 429}

func (o *settings) decodeStatuses(s section) {
	if v, ok := s.keys["stale_status"]; ok {
		if n, ok := v.integer(); ok {
			switch {
			case n < 400 || n > 499:
				v.errorf("use 412 or 409", "%d is not a status from 400 to 499", n)
			case slices.Contains(retriedStatuses, n):
				v.errorf("use 412 or 409", "%d is not a final refusal to usual clients: they retry, log in again or cache it", n)
			default:
				o.staleStatus = n
			}
		}
	}
	v, ok := s.keys["revert_on"]
	if !ok {
		return
	}
	o.revertOn = nil
	for _, item := range v.items(false) {
		n, ok := item.integer()
		switch {
		case !ok:
		case n < 400 || n > 499 || n == 408:
			item.errorf("", "%d does not say that the store turned the caller away without writing; use 401, 403 or another 4xx", n)
		case slices.Contains(o.revertOn, n):
			item.errorf("", "%d is given twice", n)
		default:
			o.revertOn = append(o.revertOn, n)
		}
	}
}

func (o *settings) decodeToken(s section) {
	if !s.has("token") {
		return
	}
	t := s.at("token").section("header", "pattern", "query", "basic_user", "strip", "from", "format", "max", "max_jump", "allow_zero", "signed")
	switch places := decodePlaces(t); {
	case t.has("from"):
		places = nil
		for _, key := range []string{"header", "pattern", "query", "basic_user", "strip"} {
			if t.has(key) {
				t.at(key).errorf("move it into the list", "it has no effect beside from")
			}
		}
		for _, item := range t.at("from").items(false) {
			from := item.section("header", "pattern", "query", "basic_user", "strip")
			if len(from.keys) == 0 {
				item.errorf("name a header, a query parameter or basic_user", "it names no place")
			}
			places = append(places, decodePlaces(from)...)
		}
		if len(places) == 0 {
			t.at("from").errorf("", "it names no place")
		}
		o.setPlaces(t, places)
	case len(places) > 0:
		o.setPlaces(t, places)
	}
	if t.has("format") {
		enum(t, "format", &o.format, nil, formatChoices()...)
		o.limits = o.format.DefaultLimits()
	}
	o.decodeLimits(t)
	o.decodeMaxJump(t)
	o.decodeSigned(t)
	if o.dialect == dialect.S3 && slices.ContainsFunc(o.places, func(p place) bool { return p.strip }) {
		t.errorf("leave strip out", "strip does not go with dialect: s3, where the signature covers query and headers")
	}
}

const maxPlaces = 16

func (o *settings) setPlaces(t section, places []place) {
	if len(places) > maxPlaces {
		t.errorf("", "%d places are named; at most %d are allowed", len(places), maxPlaces)
		return
	}
	for i := range places {
		if slices.ContainsFunc(places[:i], func(p place) bool { return p.label == places[i].label }) {
			t.errorf("", "the %s is named twice", places[i].label)
		}
	}
	o.places = places
}

func formatChoices() []choice[fencing.Format] {
	var out []choice[fencing.Format]
	for _, name := range fencing.FormatNames() {
		if f, err := fencing.ParseFormat(name); err == nil {
			out = append(out, choice[fencing.Format]{name, f})
		}
	}
	return out
}

func (o *settings) decodeLimits(t section) {
	if o.format == fencing.Opaque {
		for _, key := range []string{"max", "allow_zero"} {
			if t.has(key) {
				t.at(key).errorf("leave it out", "it has no effect: an opaque token is no number")
			}
		}
	}
	if v, ok := t.keys["max"]; ok {
		if text, ok := v.text(); ok {
			digits, base := text, 10
			if hex, ok := strings.CutPrefix(text, "0x"); ok {
				digits, base = hex, 16
			}
			n, err := strconv.ParseUint(digits, base, 64)
			switch {
			case err != nil:
				v.errorf("", "%q is not a whole number of 64 bits", clip(text))
			case n == 0:
				v.errorf("", "no token would be allowed")
			case o.format == fencing.Znode && n > math.MaxInt32:
				v.errorf("", "%d has no effect: ZooKeeper's counter ends at 2147483647", n)
			default:
				o.limits.Max = n
			}
		}
	}
	t.flag("allow_zero", &o.limits.AllowZero)
}

// decodePlaces reads header, query and basic_user, in that order, with the pattern for them.
func decodePlaces(t section) []place {
	var re *regexp.Regexp
	if t.has("pattern") {
		re = decodeRegexp(t)
	}
	var out []place
	if v, ok := t.keys["header"]; ok {
		items := v.items(true)
		if len(items) == 0 {
			v.errorf("", "it names no header")
		}
		for _, item := range items {
			if name, ok := item.text(); ok && checkHeader(item, name) {
				out = append(out, newPlace(placeHeader, name, re))
			}
		}
	}
	if v, ok := t.keys["query"]; ok {
		if name, ok := v.text(); ok && name != "" {
			out = append(out, newPlace(placeQuery, name, re))
		} else if ok {
			v.errorf("", "it names no parameter")
		}
	}
	if v, ok := t.keys["basic_user"]; ok {
		var on bool
		if t.flag("basic_user", &on); on {
			out = append(out, newPlace(placeBasicUser, "", re))
		} else if v.node.Tag == "!!bool" {
			v.errorf("leave it out", "false has no effect")
		}
	}
	var cut bool
	if t.flag("strip", &cut); cut {
		for i := range out {
			if out[i].kind == placeHeader {
				t.at("strip").errorf("leave it out", "it removes a query parameter or a user name; the header %s is forwarded, or a signature would break", out[i].name)
				break
			}
			out[i].strip = true
		}
		if len(out) == 0 {
			t.at("strip").errorf("name the query parameter, or basic_user", "it has no effect alone")
		}
	}
	switch {
	case !t.has("pattern") || t.has("from"):
	case len(out) > 1:
		t.at("pattern").errorf("give each place its own pattern in a from list", "it is not certain which place the pattern belongs to")
	case !t.has("header") && !t.has("query") && !t.has("basic_user"):
		t.at("pattern").errorf("name the header that it reads", "it has no effect alone")
	}
	return out
}

const maxRegexpLen = 512

func decodeRegexp(t section) *regexp.Regexp {
	v := t.at("pattern")
	text, ok := v.text()
	if !ok {
		return nil
	}
	if len(text) > maxRegexpLen {
		v.errorf("", "the pattern is longer than %d bytes", maxRegexpLen)
		return nil
	}
	re, err := regexp.Compile(text)
	switch {
	case err != nil:
		v.errorf("", "not a regular expression: %v", err)
	case re.NumSubexp() != 1:
		v.errorf("put the token in the only group: 'fence-([0-9]+)'; write other groups as (?:...)", "the pattern has %d groups; one is needed", re.NumSubexp())
	default:
		return re
	}
	return nil
}

// hopHeaders never reach the proxy's policies as the client sent them.
var hopHeaders = []string{"connection", "content-length", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

func checkHeader(v value, name string) bool {
	switch {
	case !isToken(name):
		v.errorf("", "%q is not a header name", clip(name))
	case slices.Contains(hopHeaders, strings.ToLower(name)):
		v.errorf("", "the header %s belongs to the connection and cannot be used", name)
	default:
		return true
	}
	return false
}

func (o *settings) fill(p *Policy, ids intern) {
	p.Mode, p.MissingToken, p.Compare = o.mode, o.missing, o.compare
	p.places, p.Format, p.Limits, p.Epoch = o.places, o.format, o.limits, o.epoch
	p.Hold = o.hold
	o.fillEvidence(p)
	p.DrainTimeout, p.InDoubtHold, p.Settle = o.drain, o.inDoubt, o.settle
	p.Serial, p.Stream = o.serial, o.stream
	p.RevertOn, p.StaleStatus, p.RevealMark = o.revertOn, o.staleStatus, o.revealMark
	p.Dialect, p.MaxBatch, p.MaxBody = o.dialect, o.maxBatch, o.maxBody
	p.verifier, p.allow = o.verifier, o.allow
	p.subtree, p.abortFree, p.uploadToken, p.signedToken, p.honours = o.subtree, o.abortFree, o.uploadToken, o.signedToken, o.honours
	if p.StaleStatus == 0 {
		p.StaleStatus = 412
		if p.Dialect == dialect.CouchDB {
			p.StaleStatus = 409 // what its clients take for a conflict
		}
	}
	p.judge = fmt.Sprint(p.TokenPlaces(), p.Format, p.Limits, p.Epoch, p.Mode, p.Compare, p.Hold, p.MissingToken, p.Serial, p.DrainTimeout, p.InDoubtHold,
		p.Settle, p.RevertOn, p.Dialect, p.subtree, p.signedToken, o.signedKeys, p.MaxJump, p.RevertUnsent)
	p.identity = ids.of(o.identity)
}
