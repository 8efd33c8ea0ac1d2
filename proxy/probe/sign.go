package probe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Credentials sign requests to an S3 store (AWS Signature Version 4).
type Credentials struct {
	Key, Secret, Session string // Session is empty for long-lived keys
	Region               string
}

// unsignedPayload says that the signature does not cover the body.
const unsignedPayload = "UNSIGNED-PAYLOAD"

type signForm uint8

const (
	signEncoded signForm = iota // over the path decoded and encoded again, as S3 says
	signRaw                     // over the path as it is sent
)

type signer struct{ Credentials }

// sign returns the headers that sign a request with all of its header lines. Nothing in the path is cleaned.
func (s *signer) sign(method, target, host string, header []field, now time.Time, form signForm) []field {
	return s.signPayload(method, target, host, header, unsignedPayload, now, form)
}

func (s *signer) signPayload(method, target, host string, header []field, payload string, now time.Time, form signForm) []field {
	stamp := now.UTC().Format("20060102T150405Z")
	day := stamp[:8]
	added := []field{{"x-amz-content-sha256", payload}, {"x-amz-date", stamp}}
	if s.Session != "" {
		added = append(added, field{"x-amz-security-token", s.Session})
	}
	signed := append([]field{{"host", host}}, added...)
	for _, f := range header {
		signed = append(signed, field{strings.ToLower(f.name), strings.TrimSpace(f.value)})
	}
	slices.SortStableFunc(signed, func(a, b field) int { return strings.Compare(a.name, b.name) })
	var lines, names strings.Builder
	for i, f := range signed {
		lines.WriteString(f.name + ":" + f.value + "\n")
		if i > 0 {
			names.WriteByte(';')
		}
		names.WriteString(f.name)
	}
	canonical := strings.Join([]string{method, canonicalURI(target, form), canonicalQuery(target), lines.String(), names.String(), payload}, "\n")
	scope := day + "/" + s.Region + "/s3/aws4_request"
	digest := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(digest[:])
	key := []byte("AWS4" + s.Secret)
	for _, part := range []string{day, s.Region, "s3", "aws4_request", text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return append(added, field{"Authorization", "AWS4-HMAC-SHA256 Credential=" + s.Key + "/" + scope + ",SignedHeaders=" + names.String() + ",Signature=" + hex.EncodeToString(key)})
}

// originForm cuts scheme and authority off an absolute-form target.
func originForm(target string) string {
	if _, rest, ok := strings.Cut(target, "://"); ok && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(rest, "/")
		return "/" + path
	}
	return target
}

func canonicalURI(target string, form signForm) string {
	path, _, _ := strings.Cut(originForm(target), "?")
	if form == signRaw {
		return path
	}
	return awsEscape(unescape(path), true)
}

func canonicalQuery(target string) string {
	_, query, found := strings.Cut(target, "?")
	if !found || query == "" {
		return ""
	}
	var pairs []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, awsEscape(unescape(name), false)+"="+awsEscape(unescape(value), false))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// awsEscape encodes every byte but the unreserved ones, and slashes where they separate.
func awsEscape(s string, slashes bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte("-_.~", c) >= 0, c == '/' && slashes:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// unescape decodes %XX once and leaves bad escapes as they are.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
