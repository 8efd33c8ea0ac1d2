package proxy_test

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// s3Stores are two that differ in much: versitygw keeps keys as files, resolves dots and asks for signatures; gofakes3 keeps them flat.
var s3Stores = []struct {
	name   string
	start  func(testing.TB) *storetest.Store
	signed bool
	reach  int // attempts that change the object at least when the store is reached directly
}{
	{"versitygw", storetest.Versitygw, true, 50},
	{"gofakes3", fakeS3, false, 50},
}

func fakeS3(t testing.TB) *storetest.Store {
	s := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(s.Close)
	return &storetest.Store{Addr: s.Listener.Addr().String(), URL: s.URL}
}

// s3Client sends requests to an address byte by byte, signed if the store asks for it.
type s3Client struct {
	t      *testing.T
	addr   string
	signed bool
	wait   time.Duration
}

// send signs the spelling as it is sent, or decoded once and encoded again. A Host among the header is signed, too.
func (c s3Client) send(encoded bool, a attempt, header ...string) reply {
	c.t.Helper()
	header = append(header, a.header...)
	if c.signed {
		host := c.addr
		var others []string
		for i := 0; i+1 < len(header); i += 2 {
			if header[i] == "Host" {
				host = header[i+1]
			} else if strings.HasPrefix(header[i], "X-Amz-") {
				others = append(others, header[i], header[i+1])
			}
		}
		header = append(header, storetest.Sign(a.method, a.target, host, encoded, others...)...)
	}
	return transmitWithin(c.t, c.wait, c.addr, a.method, a.target, a.body, header...)
}

func (c s3Client) must(code int, method, target, body string, header ...string) reply {
	c.t.Helper()
	got := c.send(false, attempt{method: method, target: target, body: body}, header...)
	if got.code != code {
		c.t.Fatalf("%s %s = %v; want %d", method, target, got, code)
	}
	return got
}

// TestNoSpellingPassesTheFenceOfAnS3Store: with a mark of 34 on an object, nothing that carries 33 changes it, in whatever spelling, by
// whatever sub-resource, copy, batch or upload.
func TestNoSpellingPassesTheFenceOfAnS3Store(t *testing.T) {
	keys := func(settings string) string {
		return fmt.Sprintf("defaults: {dialect: s3, in_doubt_hold: 300ms, drain_timeout: 5s%s}\npolicies: [{name: objects, match: {path: \"/{bucket}/{key...}\"}, resource: \"{bucket}/{key}\"}]", settings)
	}
	for _, s := range s3Stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && s.signed {
				t.Skip("some 5,000 requests")
			}
			for _, p := range []struct{ name, yaml string }{
				{"by key", keys("")},
				{"lenient", keys(", identity: {dot_segments: resolve, empty_segments: collapse, trailing_slash: same}")},
				{"by bucket", strings.Replace(keys(""), "{bucket}/{key}\"}]", "{bucket}\"}]", 1)},
			} {
				t.Run(p.name, func(t *testing.T) {
					store := s.start(t)
					r := newRig(t, store.URL, p.yaml)
					direct := s3Client{t, store.Addr, s.signed, time.Minute}
					through := s3Client{t, r.addr(), s.signed, time.Minute}
					direct.must(200, "PUT", "/bkt", "")
					stale := through.must(200, "POST", "/bkt/d/k?uploads", "", "Fencing-Token", "33")
					id := uploadIDPattern.FindStringSubmatch(stale.body)[1]
					part := through.must(200, "PUT", "/bkt/d/k?partNumber=1&uploadId="+id, "stale", "Fencing-Token", "33")
					through.must(200, "PUT", "/bkt/other", "stale", "Fencing-Token", "33")
					through.must(200, "PUT", "/bkt/d/k", fromB, "Fencing-Token", "34")
					for _, a := range s3Attempts(r.addr(), id, part.header.Get("Etag")) {
						for _, encoded := range []bool{false, true} {
							if encoded && !s.signed {
								break
							}
							got := through.send(encoded, a, "Fencing-Token", "33")
							if now := direct.send(false, attempt{method: "GET", target: "/bkt/d/k"}); now.code != 200 || now.body != fromB {
								t.Fatalf("%v with 33 was answered %v, and the store holds %v", a, got, now)
							}
						}
					}
					for _, sub := range []string{"tagging", "retention", "legal-hold"} {
						if got := direct.send(false, attempt{method: "GET", target: "/bkt/d/k?" + sub}); got.code == 200 && strings.Contains(got.body, "stale") {
							t.Errorf("?%s of the object = %v; want nothing of a stale writer", sub, got)
						}
					}
					through.must(200, "PUT", "/bkt/d/k", fromB, "Fencing-Token", "34")
					through.must(204, "DELETE", "/bkt/d/k", "", "Fencing-Token", "34")
					through.must(412, "PUT", "/bkt/d/k", "from the dead", "Fencing-Token", "33")
				})
			}
			t.Run("directly", func(t *testing.T) {
				if testing.Short() {
					t.Skip("it only shows that the table is sharp")
				}
				store := s.start(t)
				c := s3Client{t, store.Addr, s.signed, 5 * time.Second}
				c.must(200, "PUT", "/bkt", "")
				id, etag := "", ""
				begin := func() {
					c.send(false, attempt{method: "PUT", target: "/bkt"})
					c.must(200, "PUT", "/bkt/other", "stale")
					c.must(200, "PUT", "/bkt/d/k", fromB)
				}
				upload := func() {
					id = uploadIDPattern.FindStringSubmatch(c.must(200, "POST", "/bkt/d/k?uploads", "").body)[1]
					etag = c.must(200, "PUT", "/bkt/d/k?partNumber=1&uploadId="+id, "stale").header.Get("Etag")
				}
				begin()
				upload()
				reached := map[string]int{}
				sum := 0
				for i := 0; i < len(s3Attempts(store.Addr, id, etag)); i += 3 { // a third of them will do
					a := s3Attempts(store.Addr, id, etag)[i] // anew: an upload that was completed is no more
					for _, encoded := range []bool{false, true} {
						c.send(encoded, a)
						now := c.send(false, attempt{method: "GET", target: "/bkt/d/k"})
						if now.code == 200 && now.body == fromB {
							continue
						}
						reached[a.method]++
						sum++
						begin()
						if strings.Contains(a.target, "uploadId") {
							upload()
						}
						break
					}
				}
				t.Logf("%d attempts of those tried change the object when the store is reached directly: %v", sum, reached)
				if sum < s.reach {
					t.Errorf("%d attempts change something directly; want at least %d, or the table is blunt", sum, s.reach)
				}
			})
		})
	}
}

// s3Attempts are the requests that would change the object d/k of the bucket bkt. id is an upload for it that an older token began, with one
// part.
func s3Attempts(host, id, etag string) []attempt {
	var all []attempt
	add := func(method, target, body string, header ...string) {
		all = append(all, attempt{method: method, target: target, body: body, header: header})
	}
	complete := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + etag + "</ETag></Part></CompleteMultipartUpload>"
	spellings := spellingsOf("bkt", "d/k", host)
	spellings = append(spellings, "/bkt/d//k", "/bkt/d/./k", "/bkt/d/x/../k", "/bkt/d/%2e/k", "/bkt/d/x/%2e%2e/k", "/bkt/./d/k", "/bkt//d/k", "/bkt%2Fd%2Fk", "/bkt/d%2Fk", "/bkt/d%2fk", "/bkt/d/x%2f..%2fk",
		"/bkt/%64/k", "/BKT/d/k", "/bkt/D/k", "/bkt/d;v=1/k", "/bkt/x/..%2Fd/k", "/other/../bkt/d/k", "/bkt/d%5Ck", "/bkt/d%252Fk", "//bkt/d/k", "///bkt///d///k", "/bkt/d/", "/bkt/d/k/x/..")
	for _, s := range spellings {
		plain := !strings.ContainsAny(s, "?#")
		add("PUT", s, "stale")
		add("DELETE", s, "")
		add("PUT", s, "", "X-Amz-Copy-Source", "/bkt/other")
		add("POST", s, "stale")
		add("put", s, "stale")
		if plain {
			add("POST", s+"?uploadId="+id, complete)
			add("PUT", s+"?x-id=PutObject", "stale")
		}
	}
	for _, q := range []string{
		"acl", "Acl", "%61cl", "tagging", "retention", "legal-hold", "torrent", "renameObject", "encryption", "attributes", "partNumber", "partNumber=1", "versionId", "versionId=null", "versionId=1", "x-id",
		"x-id=GetObject", "uploads", "uploadId", "uploadId=", "uploadId=" + id, "uploadId=" + id + "&partNumber=1", "uploadId=" + id + "&partNumber=0", "partNumber=1&uploadId=nobody", "select&select-type=2", "restore", "lifecycle", "policy", "delete",
		"append", "response-content-type=x", "X-Amz-Meta-A=1", "_method=DELETE", "a;acl", "acl&acl", "&", "=", "%",
	} {
		add("PUT", "/bkt/d/k?"+q, "stale")
		add("DELETE", "/bkt/d/k?"+q, "")
		add("POST", "/bkt/d/k?"+q, "stale")
	}
	const tags = "<Tagging><TagSet><Tag><Key>stale</Key><Value>33</Value></Tag></TagSet></Tagging>"
	add("PUT", "/bkt/d/k?tagging", tags, "Content-MD5", md5Of(tags))
	add("POST", "/bkt/d/k?uploadId="+id, complete)
	add("POST", "/bkt/other?uploadId="+id, complete)
	add("POST", "/bkt?uploadId="+id+"&key=d/k", complete)
	add("PUT", "/bkt/d/k?uploadId="+id+"&partNumber=1", "", "X-Amz-Copy-Source", "/bkt/other")
	for _, source := range []string{"d/k", "/d/k", "/bkt/d/k", "bkt/d/k", "d%2Fk", "/bkt/./d/k", "x/../d/k", "d//k"} {
		add("PUT", "/bkt/new?renameObject", "", "X-Amz-Rename-Source", source)
		add("PUT", "/bkt/new", "", "X-Amz-Rename-Source", source, "X-Amz-Copy-Source", source, "X-Amz-Metadata-Directive", "REPLACE")
	}
	// Batches, forms, and what changes a bucket.
	for _, key := range []string{"d/k", "d//k", "./d/k", "d/./k", "x/../d/k", "d/x/../k", "/d/k", "//d/k", "d/k/", "d%2Fk", "d&#47;k", "&#x64;/k", "<![CDATA[d/k]]>", "d/k ", " d/k", "d/k\n", "d/<!-- -->k", "d\\k", "D/K", "d"} {
		for _, form := range []string{
			"<Delete><Object><Key>%s</Key></Object></Delete>",
			"<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet><Object><Key>other</Key></Object><Object><Key>%s</Key></Object></Delete>",
		} {
			body := fmt.Sprintf(form, key)
			add("POST", "/bkt?delete", body, "Content-MD5", md5Of(body))
		}
	}
	for _, target := range []string{"/bkt/?delete", "/bkt?delete=", "/bkt?x=1&delete", "/bkt?%64elete", "/bkt/?%64elete=", "//bkt?delete", "/bkt//?delete", "/./bkt?delete", "/%62kt?delete", "/bkt?delete&uploads", "/bkt?Delete", "/bkt/d?delete"} {
		const body = "<Delete><Object><Key>d/k</Key></Object></Delete>"
		add("POST", target, body, "Content-MD5", md5Of(body))
	}
	for _, body := range []string{
		"<Delete><Object><Key>other</Key><Key>d/k</Key></Object></Delete>", "<Delete><Object><key>d/k</key></Object></Delete>", "<x:Delete xmlns:x=\"y\"><x:Object><x:Key>d/k</x:Key></x:Object></x:Delete>",
		"<Delete><Object><Key>d/<b>x</b>k</Key></Object></Delete>", "<!DOCTYPE d [<!ENTITY e \"d/k\">]><Delete><Object><Key>&e;</Key></Object></Delete>", "<Delete/><Delete><Object><Key>d/k</Key></Object></Delete>",
		"{\"Objects\":[{\"Key\":\"d/k\"}]}", "<?xml version=\"1.0\" encoding=\"UTF-16\"?><Delete><Object><Key>d/k</Key></Object></Delete>", "",
	} {
		add("POST", "/bkt?delete", body, "Content-MD5", md5Of(body))
	}
	form := "--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nd/k\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"k\"\r\n\r\nstale\r\n--x--\r\n"
	for _, target := range []string{"/bkt", "/bkt/", "/bkt?x", "/bkt?delete", "/", "/bkt/other"} {
		add("POST", target, form, "Content-Type", "multipart/form-data; boundary=x")
	}
	for _, target := range []string{"/bkt", "/bkt/", "/bkt?lifecycle", "/bkt?policy", "/bkt?versioning", "/bkt?replication", "/", "//bkt", "/bkt/?acl"} {
		add("DELETE", target, "")
		add("PUT", target, "")
	}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		add("POST", "/bkt/d/k", "", name, "DELETE")
		add("GET", "/bkt/d/k", "", name, "DELETE")
	}
	for _, h := range []string{"bkt.s3.test", "bkt." + host, "bkt", strings.ToUpper(host), "elsewhere.test", ""} {
		add("PUT", "/bkt/d/k", "stale", "Host", h)
		add("PUT", "/d/k", "stale", "Host", h)
		add("DELETE", "/d/k", "", "Host", h)
	}
	add("PUT", "/bkt/d/k", "stale", "Connection", "Fencing-Token")
	add("PUT", "/bkt/d/k", "stale", "Upgrade", "h2c", "Connection", "Upgrade")
	add("COPY", "/bkt/other", "", "Destination", "/bkt/d/k")
	add("MOVE", "/bkt/d/k", "", "Destination", "/bkt/gone")
	add("PATCH", "/bkt/d/k", "stale")
	add("PUT", "/bkt/d/k", "st", "Content-Range", "bytes 0-1/6")
	return all
}

func md5Of(s string) string {
	sum := md5.Sum([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}
