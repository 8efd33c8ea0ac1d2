package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Notes keeps small texts durably. [github.com/fenceproxy/fenceproxy/tokenstore.Store] is one.
type Notes interface {
	Meta(name string) (value string, ok bool, err error)
	MetaNames(prefix string) ([]string, error)
	// SetMeta and DeleteMeta return once the change is on stable storage.
	SetMeta(name, value string) error
	DeleteMeta(name string) error
}

// uploads knows the tokens with which S3 multipart uploads were created (upload_token: create). What it knows is on disk; an upload of which
// it knows nothing needs a token with every step.
type uploads struct {
	notes Notes
	now   func() time.Time

	mu sync.Mutex // guards swept
	// +checklocks:mu
	swept time.Time
}

// uploadPrefix begins the names of what is noted of uploads.
const uploadPrefix = "upload/"

// uploadLife is how long the token of an upload is kept that nobody completes or aborts. Stores clean up such uploads after days. A clock that
// jumps ahead costs the uploads their tokens, and their next steps are refused for want of one.
const uploadLife = 30 * 24 * time.Hour

// name returns the name under which the token of an upload is noted. Keys and ids have any length and any bytes.
func (u *uploads) name(object fencing.Resource, id string) string {
	sum := sha256.Sum256([]byte(string(object) + "\x00" + id))
	return uploadPrefix + hex.EncodeToString(sum[:])
}

// remember notes the token of an upload that was just created, and returns once that is durable.
func (u *uploads) remember(object fencing.Resource, id string, t fencing.Token) error {
	now := u.now()
	u.sweep(now)
	return u.notes.SetMeta(u.name(object, id), printUpload(t)+" "+now.UTC().Format(time.RFC3339))
}

// token returns the token with which the upload was created.
func (u *uploads) token(object fencing.Resource, id string) (t fencing.Token, ok bool, err error) {
	value, ok, err := u.notes.Meta(u.name(object, id))
	if err != nil || !ok {
		return t, false, err
	}
	if t, _, err = parseUpload(value); err != nil {
		return t, false, err
	}
	return t, true, nil
}

// printUpload writes a token as a pair, with its epoch in front where that is not 0: "2/0.34".
func printUpload(t fencing.Token) string {
	text := fencing.Pair.Print(t)
	if t.Epoch != 0 {
		text = strconv.FormatUint(uint64(t.Epoch), 10) + "/" + text
	}
	return text
}

func parseUpload(value string) (t fencing.Token, created time.Time, err error) {
	token, date, _ := strings.Cut(value, " ")
	epoch, number, ok := strings.Cut(token, "/")
	if !ok {
		epoch, number = "0", token
	}
	e, err := strconv.ParseUint(epoch, 10, 32)
	if err == nil {
		t, err = fencing.Pair.Parse(number)
	}
	if err == nil {
		t.Epoch = uint32(e)
		created, err = time.Parse(time.RFC3339, date)
	}
	if err != nil {
		return t, created, fmt.Errorf("the token of an upload cannot be read: %w", err)
	}
	return t, created, nil
}

// forget drops an upload that has ended.
func (u *uploads) forget(object fencing.Resource, id string) error {
	return u.notes.DeleteMeta(u.name(object, id))
}

// sweep drops uploads that are too old, once a day at most. What cannot be dropped now is tried again the next time.
func (u *uploads) sweep(now time.Time) {
	u.mu.Lock()
	due := now.Sub(u.swept) >= 24*time.Hour || now.Before(u.swept)
	if due {
		u.swept = now
	}
	u.mu.Unlock()
	if !due {
		return
	}
	names, err := u.notes.MetaNames(uploadPrefix)
	if err != nil {
		return
	}
	for _, name := range names {
		value, ok, err := u.notes.Meta(name)
		if err != nil || !ok {
			continue
		}
		if _, created, err := parseUpload(value); err != nil || now.Sub(created) > uploadLife {
			_ = u.notes.DeleteMeta(name) // the next sweep finds it again
		}
	}
}

// bindUpload gives the step of an upload that carries no token that of its creation. Without one it is rejected like any write without a
// token.
func (x *exchange) bindUpload() {
	d := &x.decision
	if d.Upload == nil || !d.Upload.NeedsToken || d.Action != policies.Fence {
		return
	}
	t, ok, err := x.p.uploads.token(d.Upload.Object, d.Upload.ID)
	if err == nil {
		err = d.BindToken(t, ok)
	}
	if err != nil {
		d.Action, d.Err, d.Observed = policies.Reject, err, x.observed()
	}
}

// remembers reports whether the answer names an upload whose token is to be kept.
func (x *exchange) remembers() bool {
	return x.decision.Upload != nil && x.decision.Upload.Remember && x.decision.Action == policies.Fence
}

// uploadAnswered notes what the store's answer says of an upload: its id, before the client learns that, or its end.
func (x *exchange) uploadAnswered(status int, answer *summary) {
	u := x.decision.Upload
	if u == nil || x.decision.Action != policies.Fence || status < 200 || status > 299 || answer.failed() {
		return
	}
	var err error
	switch {
	case u.Remember && answer.uploadID() == "":
		x.p.log.Error("the answer that created an upload names no UploadId: its parts need tokens of their own", x.attrs(keyResource, u.Object)...)
	case u.Remember:
		err = x.p.uploads.remember(u.Object, answer.uploadID(), x.decision.Token)
	case u.Ends:
		err = x.p.uploads.forget(u.Object, u.ID)
	}
	if err != nil {
		x.p.log.Error("the token of an upload could not be kept: its parts need tokens of their own", x.attrs(keyError, err)...)
	}
}
