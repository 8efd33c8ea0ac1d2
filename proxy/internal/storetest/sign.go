package storetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Sign returns the header lines, names and values in turn, that sign a request to [Versitygw] (AWS Signature Version 4). They cover host,
// the given header and the target as it is sent: no spelling is cleaned. Of an absolute target the path is covered. encoded says that the
// path is decoded once and encoded again, which is how S3 itself reads most of them.
func Sign(method, target, host string, encoded bool, header ...string) []string {
	const payload = "UNSIGNED-PAYLOAD"
	stamp := time.Now().UTC().Format("20060102T150405Z")
	added := []string{"x-amz-content-sha256", payload, "x-amz-date", stamp}
	lines := []string{"host:" + host + "\n"}
	for i := 0; i+1 < len(header); i += 2 {
		lines = append(lines, strings.ToLower(header[i])+":"+strings.TrimSpace(header[i+1])+"\n")
	}
	for i := 0; i < len(added); i += 2 {
		lines = append(lines, added[i]+":"+added[i+1]+"\n")
	}
	slices.Sort(lines)
	var names []string
	for _, l := range lines {
		name, _, _ := strings.Cut(l, ":")
		names = append(names, name)
	}
	if _, rest, ok := strings.Cut(target, "://"); ok && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(rest, "/")
		target = "/" + path
	}
	path, query, _ := strings.Cut(target, "?")
	if encoded {
		path = awsEscape(unescape(path), true)
	}
	var pairs []string
	for part := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(part, "="); part != "" {
			pairs = append(pairs, awsEscape(unescape(name), false)+"="+awsEscape(unescape(value), false))
		}
	}
	slices.Sort(pairs)
	canonical := strings.Join([]string{method, path, strings.Join(pairs, "&"), strings.Join(lines, ""), strings.Join(names, ";"), payload}, "\n")
	scope := stamp[:8] + "/us-east-1/s3/aws4_request"
	digest := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + SecretKey)
	for _, part := range []string{stamp[:8], "us-east-1", "s3", "aws4_request", "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(digest[:])} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return append(added, "Authorization", "AWS4-HMAC-SHA256 Credential="+AccessKey+"/"+scope+",SignedHeaders="+strings.Join(names, ";")+",Signature="+hex.EncodeToString(key))
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
