package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/admin"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// held puts a mark with a holder in the store.
func (d *desk) held(r fencing.Resource, ttl time.Duration) {
	d.t.Helper()
	m := fencing.Mark{Token: fencing.Number(3), Format: fencing.Opaque, Holder: "secret-id", TTL: ttl, Policy: "rides"}
	if err := d.store.Advance([]fencing.ResourceMark{{Resource: r, Mark: m}}); err != nil {
		d.t.Fatal(err)
	}
}

func TestHolderIsShownWithTheBearerTokenAlone(t *testing.T) {
	d := newDesk(t, bearer)
	d.held("a", 0)
	d.held("b", time.Hour)
	for _, target := range []string{"/v1/resources", "/v1/resources/a", "/v1/resources/b", "/v1/export"} {
		for _, auth := range []string{"", "Bearer wrong", "Bearer ", bearer} {
			if w := d.do("GET", target, "", auth); strings.Contains(w.Body.String(), "secret-id") {
				t.Errorf("GET %s with %q shows the id: %s", target, auth, w.Body)
			}
		}
		if w := d.do("GET", target, "", "Bearer "+bearer); w.Code != 200 || !strings.Contains(w.Body.String(), "secret-id") {
			t.Errorf("GET %s with the token = %d %s; want the id", target, w.Code, w.Body)
		}
	}
	var a, b admin.Mark
	d.get("/v1/resources/a", 200, &a)
	d.get("/v1/resources/b", 200, &b)
	if a.Hold == nil || *a.Hold != (admin.Hold{}) || a.Token != "3" || a.Format != "opaque" {
		t.Errorf("a is shown as %+v, hold %+v; want one without an end", a, a.Hold)
	}
	if b.Hold == nil || b.Hold.TTL != "1h0m0s" || b.Hold.Left < 3500 || b.Hold.Left > 3600 || b.Hold.Expired {
		t.Errorf("b is shown as %+v; want an hour left", b.Hold)
	}
	if strings.Contains(d.logs.String(), "secret-id") {
		t.Error("the log holds the id")
	}
}

func TestExportOfHoldersIsRefusedWhereChangesAreSwitchedOff(t *testing.T) {
	d := newDesk(t, "")
	if w := d.do("GET", "/v1/export", "", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "trailer") {
		t.Errorf("without holders = %d %s; want an export", w.Code, w.Body)
	}
	d.held("a", 0)
	for _, auth := range []string{"", "Bearer "} {
		if w := d.do("GET", "/v1/export", "", auth); w.Code < 400 || strings.Contains(w.Body.String(), "secret-id") {
			t.Errorf("with a holder = %d %s; want a refusal", w.Code, w.Body)
		}
	}
}

func TestReleaseOfAHold(t *testing.T) {
	d := newDesk(t, bearer)
	d.held("a", 0)
	post := func(body, auth string) int {
		t.Helper()
		return d.do("POST", "/v1/release", body, auth).Code
	}
	for body, want := range map[string]int{
		`{"resource": "a"}`: 400, `{"resource": "", "reason": "x"}`: 400, `{"resource": "a", "reason": "x", "force": true}`: 400, `{`: 400,
		`{"resource": "free", "reason": "x"}`: 404,
	} {
		if got := post(body, "Bearer "+bearer); got != want {
			t.Errorf("%s = %d; want %d", body, got, want)
		}
	}
	if got := post(`{"resource": "a", "reason": "x"}`, ""); got != 401 {
		t.Errorf("without the token = %d; want 401", got)
	}
	if m, _, _ := d.store.Load("a"); m.Holder == "" {
		t.Fatal("it was released all the same")
	}
	if got := post(`{"resource": "a", "reason": "cancelled", "by": "ann"}`, "Bearer "+bearer); got != 200 {
		t.Errorf("release = %d; want 200", got)
	}
	m, _, err := d.store.Load("a")
	if err != nil || m.Holder != "" || m.Token != fencing.Number(3) || m.By != "ann" || m.Reason != "cancelled" {
		t.Errorf("mark %+v, %v; want number 3 without a holder, and who and why", m, err)
	}
	if logs := d.logs.String(); !strings.Contains(logs, `msg="hold released by an operator" resource=a by=ann reason=cancelled`) || !strings.Contains(logs, "WARN") {
		t.Errorf("the log is %s; want who and why", logs)
	}
	if got := post(`{"resource": "a", "reason": "again"}`, "Bearer "+bearer); got != 404 {
		t.Errorf("again = %d; want 404", got)
	}
}

func TestNumberOfAHolderIsNotTheOperatorsToSet(t *testing.T) {
	d := newDesk(t, bearer)
	d.held("a", 0)
	d.held("b", 0)
	for _, body := range []string{`{"token": "9"}`, `{"token": "9", "format": "opaque"}`} {
		if text := d.set("/v1/resources/a", body, 400); !strings.Contains(text, "release the hold instead") {
			t.Errorf("%s: %s; want a hint", body, text)
		}
	}
	d.set("/v1/resources/b", `{"token": "9", "format": "decimal"}`, 200)
	if m, _, err := d.store.Load("b"); err != nil || m.Holder != "" || m.Token != fencing.Number(9) {
		t.Errorf("mark %+v, %v; want 9 without a holder", m, err)
	}
}
