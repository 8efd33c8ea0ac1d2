// Command minio writes to S3 with minio-go and sends $TOKEN with every request. The transport adds it after the request was signed, which
// stores allow for headers other than x-amz-*.
//
//	minio upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY
package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// fenced adds the token of a lease to each request.
type fenced struct {
	token string
	next  http.RoundTripper
}

func (f fenced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change the request that it is given
	r.Header.Set("Fencing-Token", f.token)
	return f.next.RoundTrip(r)
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "minio:", err) // the message of the proxy is in it
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	endpoint := strings.TrimPrefix(cmp.Or(os.Getenv("PROXY"), "http://127.0.0.1:8080"), "http://")
	client, err := minio.New(endpoint, &minio.Options{
		Creds:     credentials.NewStaticV4(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
		Region:    "us-east-1",
		Transport: fenced{os.Getenv("TOKEN"), http.DefaultTransport},
	})
	if err != nil {
		return err
	}
	if len(args) < 2 {
		return fmt.Errorf("usage: minio upload|download|copy|delete …")
	}
	switch args[0] {
	case "upload":
		bucket, key, _ := strings.Cut(args[2], "/")
		_, err := client.FPutObject(ctx, bucket, key, args[1], minio.PutObjectOptions{})
		return err
	case "download":
		bucket, key, _ := strings.Cut(args[1], "/")
		return client.FGetObject(ctx, bucket, key, args[2], minio.GetObjectOptions{})
	case "copy":
		from, fromKey, _ := strings.Cut(args[1], "/")
		bucket, key, _ := strings.Cut(args[2], "/")
		_, err := client.CopyObject(ctx, minio.CopyDestOptions{Bucket: bucket, Object: key}, minio.CopySrcOptions{Bucket: from, Object: fromKey})
		return err
	case "delete":
		bucket, key, _ := strings.Cut(args[1], "/")
		return client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
	}
	return fmt.Errorf("no command %q", args[0])
}
