package signed_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/signed"
)

var now = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// pair is a key that signs and the one that checks.
type pair struct{ signs, checks signed.Key }

func newPair(t testing.TB, a signed.Algorithm) pair {
	t.Helper()
	private, public, err := signed.NewKey(a)
	if err != nil {
		t.Fatal(err)
	}
	if a == signed.HS256 {
		public = private
	}
	return pair{parse(t, private), parse(t, public)}
}

func parse(t testing.TB, data []byte) signed.Key {
	t.Helper()
	k, err := signed.ParseKey(data)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func verifier(t testing.TB, keys ...signed.Key) *signed.Verifier {
	t.Helper()
	v, err := signed.NewVerifier(keys[0].Algorithm(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (p pair) sign(t testing.TB, c signed.Claims) string {
	t.Helper()
	text, err := p.signs.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func ride7(exp time.Time) signed.Claims {
	return signed.Claims{Resources: []string{"rides/7"}, Token: "34", Expires: exp}
}

func kindOf(err error) signed.Kind {
	if e, ok := errors.AsType[*signed.Error](err); ok {
		return e.Kind
	}
	return ""
}

func TestWhatIsSignedIsVerified(t *testing.T) {
	for _, a := range []signed.Algorithm{signed.HS256, signed.EdDSA} {
		k, old := newPair(t, a), newPair(t, a)
		for _, c := range []signed.Claims{
			ride7(now.Add(time.Second)),
			{Resources: []string{"a", "b/\"c"}, Token: "7.1042", Expires: now.Add(time.Hour), NotBefore: now},
			{Prefix: "rides/", Token: "abc-def", Expires: now.Add(time.Hour)},
		} {
			for name, v := range map[string]*signed.Verifier{"alone": verifier(t, k.checks), "first": verifier(t, k.checks, old.checks), "second": verifier(t, old.checks, k.checks)} {
				got, err := v.Verify(k.sign(t, c), now)
				if err != nil || got.Token != c.Token || got.Prefix != c.Prefix || fmt.Sprint(got.Resources) != fmt.Sprint(c.Resources) || !got.Expires.Equal(c.Expires) || !got.NotBefore.Equal(c.NotBefore) && !c.NotBefore.IsZero() {
					t.Errorf("%s %s: %+v, %v; want %+v", a, name, got, err, c)
				}
			}
			if _, err := verifier(t, old.checks).Verify(k.sign(t, c), now); kindOf(err) != signed.Invalid {
				t.Errorf("%s by another key: %v; want invalid", a, err)
			}
		}
	}
}

func TestTokensAreRefusedAtTheirTime(t *testing.T) {
	k := newPair(t, signed.HS256)
	v := verifier(t, k.checks)
	c := ride7(now.Add(30 * time.Second))
	c.NotBefore = now.Add(-30 * time.Second)
	text := k.sign(t, c)
	for _, tt := range []struct {
		at   time.Duration
		kind signed.Kind
		says string
	}{
		{-31 * time.Second, signed.Invalid, "not valid before 2026-11-30T01:59:30Z, and it is 2026-11-30T01:59:29Z by the proxy's clock"},
		{-30 * time.Second, "", ""},
		{30*time.Second - 1, "", ""},
		{30 * time.Second, signed.Expired, "expired at 2026-11-30T02:00:30Z, and it is 2026-11-30T02:00:30Z"},
		{24 * time.Hour, signed.Expired, "2026-12-01T02:00:00Z by the proxy's clock"},
	} {
		got, err := v.Verify(text, now.Add(tt.at))
		if kindOf(err) != tt.kind || err != nil && !strings.Contains(err.Error(), tt.says) || err == nil != (tt.kind == "") {
			t.Errorf("at %v: %v; want %q %q", tt.at, err, tt.kind, tt.says)
		}
		if got == nil || got.Token != "34" {
			t.Errorf("at %v: claims %+v; they are returned whatever the time", tt.at, got)
		}
	}
}

var b64 = base64.RawURLEncoding

// mac makes a token by hand: any header over any payload, with a good HMAC.
func mac(secret []byte, header, payload string) string {
	input := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(payload))
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(input))
	return input + "." + b64.EncodeToString(h.Sum(nil))
}

const (
	hs256  = `{"alg":"HS256"}`
	claims = `{"resource":"rides/7","token":"34","exp":1796004030}` // 2026-11-30T02:00:30Z
)

func TestHandMadeTokens(t *testing.T) {
	secret := []byte(strings.Repeat("s", 32))
	v := verifier(t, parse(t, []byte(b64.EncodeToString(secret))))
	good := mac(secret, hs256, claims)
	if _, err := v.Verify(good, now); err != nil {
		t.Fatalf("the token from which the others are made: %v", err)
	}
	parts := strings.Split(good, ".")
	with := func(payload string) string { return mac(secret, hs256, payload) }
	head := func(header string) string { return mac(secret, header, claims) }
	ed := newPair(t, signed.EdDSA)
	for _, tt := range []struct {
		name, text string
		kind       signed.Kind
		says       string
	}{
		{"bare", "99999999", signed.Unsigned, "it is not signed"},
		{"empty", "", signed.Unsigned, "not signed"},
		{"bare pair", "7.1042", signed.Unsigned, "not signed"},
		{"bare with two dots", "1.2.3", signed.Unsigned, "not signed"},
		{"two tokens", good + ", " + good, signed.Invalid, "it is a list"},
		{"none", b64.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", signed.Invalid, "base64url"},
		{"none with a signature", b64.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2], signed.Invalid, `algorithm is "none", and only HS256 is taken`},
		{"no alg", head(`{"kid":"1"}`), signed.Invalid, `algorithm is ""`},
		{"alg is a list", head(`{"alg":["HS256"]}`), signed.Invalid, "algorithm"},
		{"alg in another case", head(`{"alg":"hs256"}`), signed.Invalid, `"hs256"`},
		{"Alg", head(`{"Alg":"HS256"}`), signed.Invalid, `algorithm is ""`},
		{"HS512", head(`{"alg":"HS512"}`), signed.Invalid, `"HS512"`},
		{"EdDSA", ed.sign(t, ride7(now.Add(time.Minute))), signed.Invalid, `"EdDSA"`},
		{"a long alg", head(`{"alg":"` + strings.Repeat("x", 5000) + `"}`), signed.Invalid, `"xxxxxxxxxxxxxxxxxxxx", and`},
		{"alg twice", head(`{"alg":"HS256","alg":"HS256"}`), signed.Invalid, "header cannot be read"},
		{"crit", head(`{"alg":"HS256","crit":["exp"],"exp":1}`), signed.Invalid, `"crit"`},
		{"crit b64", head(`{"alg":"HS256","crit":["b64"],"b64":false}`), signed.Invalid, `"crit"`},
		{"b64", head(`{"alg":"HS256","b64":false}`), signed.Invalid, `"b64"`},
		{"own key", head(`{"alg":"HS256","jwk":{"kty":"oct","k":"c3Nz"}}`), signed.Invalid, `"jwk"`},
		{"key by address", head(`{"alg":"HS256","jku":"https://x.test"}`), signed.Invalid, `"jku"`},
		{"nested", head(`{"alg":"HS256","cty":"JWT"}`), signed.Invalid, "nested"},
		{"compressed", head(`{"alg":"HS256","zip":"DEF"}`), signed.Invalid, `"zip"`},
		{"header is no object", mac(secret, `["alg"]`, claims), signed.Unsigned, ""},
		{"header is broken", head(`{"alg":"HS256"`), signed.Invalid, "header cannot be read"},
		{"header and more", head(`{"alg":"HS256"}{}`), signed.Invalid, "header cannot be read"},
		{"JWE", "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA", signed.Invalid, "encrypted"},
		{"JSON", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, signed.Invalid, "JSON serialisation"},
		{"JSON after a space", ` {"payload":"` + parts[1] + `","signatures":[]}`, signed.Invalid, "JSON serialisation"},
		{"four parts", good + "." + parts[2], signed.Unsigned, ""},
		{"detached", parts[0] + ".." + parts[2], signed.Invalid, "base64url"},
		{"no signature", parts[0] + "." + parts[1] + ".", signed.Invalid, "base64url"},
		{"padding", good + "=", signed.Invalid, "base64url"},
		{"a line end", parts[0] + "." + parts[1] + "\n." + parts[2], signed.Invalid, "base64url"},
		{"a space", parts[0] + "." + parts[1] + " ." + parts[2], signed.Invalid, "base64url"},
		{"too long", with(`{"x":"` + strings.Repeat("x", signed.MaxLen) + `"}`), signed.Invalid, "longer than 8192 bytes"},
		{"another payload", parts[0] + "." + b64.EncodeToString([]byte(strings.Replace(claims, "34", "99", 1))) + "." + parts[2], signed.Invalid, "signature is not"},
		{"another header", b64.EncodeToString([]byte(`{"alg":"HS256","kid":"1"}`)) + "." + parts[1] + "." + parts[2], signed.Invalid, "signature is not"},
		{"half a signature", parts[0] + "." + parts[1] + "." + b64.EncodeToString([]byte(strings.Repeat("x", 16))), signed.Invalid, "signature is not"},

		{"no exp", with(`{"resource":"rides/7","token":"34"}`), signed.Invalid, "never ends: it needs the claim exp"},
		{"exp null", with(`{"resource":"rides/7","token":"34","exp":null}`), signed.Invalid, "claim exp is not a date"},
		{"exp text", with(`{"resource":"rides/7","token":"34","exp":"1796004030"}`), signed.Invalid, "claim exp is not a date"},
		{"exp far off", with(`{"resource":"rides/7","token":"34","exp":1e300}`), signed.Invalid, "claim exp is not a date"},
		{"exp beyond numbers", with(`{"resource":"rides/7","token":"34","exp":1e999}`), signed.Invalid, "claim exp is not a date"},
		{"exp in milliseconds", with(`{"resource":"rides/7","token":"34","exp":1796004030000}`), signed.Invalid, "claim exp is not a date"},
		{"exp negative", with(`{"resource":"rides/7","token":"34","exp":-1}`), signed.Invalid, "claim exp is not a date"},
		{"exp twice", with(`{"resource":"rides/7","token":"34","exp":1,"exp":1796004030}`), signed.Invalid, "duplicate key 'exp'"},
		{"EXP alone", with(`{"resource":"rides/7","token":"34","EXP":1796004030}`), signed.Invalid, "never ends"},
		{"nbf text", with(`{"resource":"rides/7","token":"34","exp":1796004030,"nbf":"x"}`), signed.Invalid, "claim nbf"},
		{"no token", with(`{"resource":"rides/7","exp":1796004030}`), signed.Invalid, "claim token as text"},
		{"token null", with(`{"resource":"rides/7","token":null,"exp":1796004030}`), signed.Invalid, "claim token as text"},
		{"token a number", with(`{"resource":"rides/7","token":34,"exp":1796004030}`), signed.Invalid, "may lose digits"},
		{"token twice", with(`{"resource":"rides/7","token":"34","token":"99","exp":1796004030}`), signed.Invalid, "duplicate key 'token'"},
		{"token twice, once escaped", with(`{"resource":"rides/7","token":"34","tok\u0065n":"99","exp":1796004030}`), signed.Invalid, "duplicate key 'token'"},
		{"unknown twice", with(`{"x":1,"resource":"rides/7","token":"34","exp":1796004030,"x":2}`), signed.Invalid, "duplicate key 'x'"},
		{"no resource", with(`{"token":"34","exp":1796004030}`), signed.Invalid, "for no resource"},
		{"empty list", with(`{"resource":[],"token":"34","exp":1796004030}`), signed.Invalid, "for no resource"},
		{"empty text", with(`{"resource":"","token":"34","exp":1796004030}`), signed.Invalid, "empty text"},
		{"empty prefix", with(`{"prefix":"","token":"34","exp":1796004030}`), signed.Invalid, "for no resource"},
		{"resource null", with(`{"resource":null,"token":"34","exp":1796004030}`), signed.Invalid, "for no resource"},
		{"resource a number", with(`{"resource":7,"token":"34","exp":1796004030}`), signed.Invalid, "neither a text nor a list"},
		{"list with null", with(`{"resource":["a",null],"token":"34","exp":1796004030}`), signed.Invalid, "neither a text nor a list"},
		{"list with a number", with(`{"resource":["a",7],"token":"34","exp":1796004030}`), signed.Invalid, "neither a text nor a list"},
		{"resource and prefix", with(`{"resource":"a","prefix":"b","token":"34","exp":1796004030}`), signed.Invalid, "both claims"},
		{"no object", with(`"rides/7"`), signed.Invalid, "cannot be read"},
		{"null", with(`null`), signed.Invalid, "claim token"},
		{"object and more", with(claims + claims), signed.Invalid, "cannot be read"},
		{"not UTF-8", with("{\"resource\":\"rides/\xff\",\"token\":\"34\",\"exp\":1796004030}"), signed.Invalid, "not UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := v.Verify(tt.text, now)
			if c != nil || kindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Verify = %+v, %q %v; want %s %q", c, kindOf(err), err, tt.kind, tt.says)
			}
			if len(tt.text) > 20 && err != nil && (strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), parts[2])) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
	for name, text := range map[string]string{
		"unknown claims":    with(`{"iss":"lock","Token":"99","resource":"rides/7","token":"34","exp":1796004030,"x":{"a":1}}`),
		"kid and typ":       head(`{"alg":"HS256","kid":"2026-11","typ":"JWT"}`),
		"white space":       mac(secret, "{\n \"alg\": \"HS256\"}", "\n{ \"resource\" : \"rides/7\", \"token\":\"34\", \"exp\" : 1796004030 }"),
		"a fraction":        with(`{"resource":"rides/7","token":"34","exp":1796004030.5}`),
		"a list":            with(`{"resource":["x","rides/7"],"token":"34","exp":1796004030}`),
		"null for a prefix": with(`{"resource":"rides/7","prefix":null,"token":"34","exp":1796004030}`),
	} {
		if c, err := v.Verify(text, now); err != nil || c.Token != "34" || !c.Covers("rides/7") {
			t.Errorf("%s: %+v, %v; want it taken", name, c, err)
		}
	}
}

// A verifier for public keys must not take an HMAC that was made with the bytes of one, whatever the header says.
func TestPublicKeyIsNoSecret(t *testing.T) {
	private, public, err := signed.NewKey(signed.EdDSA)
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, parse(t, public))
	block, _ := pem.Decode(public)
	pub, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range [][]byte{public, block.Bytes, pub.(ed25519.PublicKey)} {
		for _, header := range []string{hs256, `{"alg":"EdDSA"}`} {
			if c, err := v.Verify(mac(secret, header, claims), now); kindOf(err) != signed.Invalid {
				t.Errorf("an HMAC with %s: %+v, %v; want invalid", header, c, err)
			}
		}
	}
	if _, err := v.Verify(pair{signs: parse(t, private)}.sign(t, ride7(now.Add(time.Minute))), now); err != nil {
		t.Errorf("its own: %v", err)
	}
}

func TestNoKeyNoToken(t *testing.T) {
	k := newPair(t, signed.HS256)
	v, err := signed.NewVerifier(signed.HS256)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := v.Verify(k.sign(t, ride7(now.Add(time.Minute))), now); kindOf(err) != signed.Invalid {
		t.Errorf("%+v, %v; want invalid", c, err)
	}
	if _, err := signed.NewVerifier(signed.EdDSA, k.checks); err == nil {
		t.Error("a secret is taken for EdDSA")
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		resources   []string
		prefix, key string
		want        bool
	}{
		{[]string{"rides/7"}, "", "rides/7", true},
		{[]string{"rides/7"}, "", "rides/77", false},
		{[]string{"rides/7"}, "", "rides/7/driver", false},
		{[]string{"rides/7"}, "", "rides/", false},
		{[]string{"a", "b"}, "", "b", true},
		{nil, "rides/7", "rides/7", true},
		{nil, "rides/7", "rides/7/driver", true},
		{nil, "rides/7", "rides/77", false},
		{nil, "rides/7", "rides/7?a=1", false},
		{nil, "rides/", "rides/7", true},
		{nil, "rides/", "rides/", true},
		{nil, "rides/", "rides", false},
		{nil, "rides", "rides/7", true},
		{nil, "Rides", "rides/7", false},
		{nil, "", "rides/7", false},
		{nil, "", "/", false},
	} {
		c := signed.Claims{Resources: tt.resources, Prefix: tt.prefix}
		if got := c.Covers(tt.key); got != tt.want {
			t.Errorf("%q, prefix %q, covers %q: %t; want %t", tt.resources, tt.prefix, tt.key, got, tt.want)
		}
	}
	for prefix, want := range map[string]bool{"dav/a": true, "dav/a/": true, "dav/": true, "dav": true, "dav/a/b": false, "da": false} {
		if got := (&signed.Claims{Prefix: prefix}).CoversTree("dav/a/"); got != want {
			t.Errorf("prefix %q covers the tree dav/a/: %t; want %t", prefix, got, want)
		}
	}
	if (&signed.Claims{Resources: []string{"dav/a", "dav/a/", "dav/a?tree"}}).CoversTree("dav/a/") {
		t.Error("resources cover a tree")
	}
}

func TestKeyFiles(t *testing.T) {
	secret := b64.EncodeToString([]byte(strings.Repeat("\xfb\xff", 16)))
	if !strings.ContainsAny(secret, "-_") {
		t.Fatalf("%s shows nothing of the alphabet", secret)
	}
	private, public, err := signed.NewKey(signed.EdDSA)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(zeros{}, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p8, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, data string
		want       string // of the error
	}{
		{"a secret", secret, ""},
		{"white space around it", "\n" + secret + " \r\n", ""},
		{"padding", secret + "=", ""},
		{"a public key", string(public), ""},
		{"a private key", string(private), ""},
		{"nothing", " \n", "it is empty"},
		{"31 bytes", b64.EncodeToString(make([]byte, 31)), "it holds 31 bytes, and HS256 needs 32"},
		{"base64 of the other alphabet", strings.NewReplacer("-", "+", "_", "/").Replace(secret), "neither base64url text (which has - and _ for + and /) nor PEM"},
		{"spare bits", secret[:len(secret)-1] + "9", "neither base64url"},
		{"two lines", secret + "\n" + secret, "neither base64url"}, // base64 would skip the line end
		{"two keys", string(public) + string(public), "more than one key"},
		{"broken PEM", string(public)[:60], "broken PEM"},
		{"RSA", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p8})), "another kind than Ed25519"},
		{"another type", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte{1}})), `of the type "EC PRIVATE KEY"`},
		{"not DER", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("secret")})), "its public key cannot be read"},
	} {
		k, err := signed.ParseKey([]byte(tt.data))
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		case err != nil && strings.Contains(err.Error(), secret[:10]):
			t.Errorf("%s: the error shows the key: %v", tt.name, err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
			if got, want := fmt.Sprintf(verb, k), "("+string(k.Algorithm())+" key)"; got != want {
				t.Errorf("%s: %s shows %q; want %q", tt.name, verb, got, want)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestSignRefusesWhatVerifyWould(t *testing.T) {
	k := newPair(t, signed.EdDSA)
	for name, c := range map[string]signed.Claims{
		"nothing":      {Token: "34", Expires: now},
		"both":         {Resources: []string{"a"}, Prefix: "b", Token: "34", Expires: now},
		"an empty":     {Resources: []string{""}, Token: "34", Expires: now},
		"far too much": {Resources: []string{strings.Repeat("x", signed.MaxLen)}, Token: "34", Expires: now},
	} {
		if text, err := k.signs.Sign(c); err == nil {
			t.Errorf("%s: %q; want an error", name, text)
		}
	}
	if _, err := k.checks.Sign(ride7(now)); err == nil {
		t.Error("a public key signs")
	}
}

// FuzzVerify changes tokens and gives arbitrary ones: nothing panics, and no text but the signed one is taken.
func FuzzVerify(f *testing.F) {
	secret := []byte(strings.Repeat("s", 32))
	v := verifier(f, parse(f, []byte(b64.EncodeToString(secret))))
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(secret)))})
	ed := parse(f, private)
	w := verifier(f, ed)
	texts := []string{mac(secret, hs256, claims), pair{signs: ed}.sign(f, ride7(now.Add(time.Minute)))}
	for _, text := range texts {
		f.Add(text, 0, byte(0))
		f.Add(text, len(text)-1, byte(1)) // the spare bits of the last letter
		f.Add(text, len(text)-1, byte(2))
		f.Add(text, 5, byte('\n'))
	}
	f.Add("34", 0, byte(1))
	f.Add("{}", 0, byte(0))
	f.Fuzz(func(t *testing.T, text string, at int, flip byte) {
		changed := []byte(text)
		if at >= 0 && at < len(changed) {
			changed[at] ^= flip
		}
		for i, v := range []*signed.Verifier{v, w} {
			if c, err := v.Verify(string(changed), now); (err == nil) != (string(changed) == texts[i]) {
				t.Errorf("%q: %+v, %v", changed, c, err)
			}
		}
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// FuzzClaims gives arbitrary claims with a good signature. What is taken can be signed again, and is taken then with the same meaning.
func FuzzClaims(f *testing.F) {
	secret := []byte(strings.Repeat("s", 32))
	k := parse(f, []byte(b64.EncodeToString(secret)))
	v := verifier(f, k)
	for _, payload := range []string{claims, `{"resource":["a","b"],"token":"1","exp":1e9,"nbf":1}`, `{"prefix":"a/","token":"1","exp":4e9}`, `{"token":"1","token":"2"}`, `[]`, `{"resource":"\ud800","token":"1","exp":4e9}`} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := v.Verify(mac(secret, hs256, string(payload)), now)
		if err != nil {
			return
		}
		text, err := k.Sign(*c)
		if err != nil {
			return // only for its length
		}
		again, err := v.Verify(text, c.Expires.Add(-time.Second))
		if again == nil || again.Token != c.Token || again.Scope() != c.Scope() || again.Expires.Unix() != c.Expires.Unix() {
			t.Errorf("%q was read as %+v and then as %+v, %v", payload, c, again, err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	for _, a := range []signed.Algorithm{signed.HS256, signed.EdDSA} {
		k := newPair(b, a)
		v, text := verifier(b, k.checks), k.sign(b, ride7(now.Add(time.Minute)))
		b.Run(string(a), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(text, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
