// Command awssdk writes to S3 with aws-sdk-go-v2 and sends $TOKEN with every request, signed.
//
//	awssdk upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "awssdk:", err) // the message of the proxy is in it
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String(cmp.Or(os.Getenv("PROXY"), "http://127.0.0.1:8080")),
		UsePathStyle: true,
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
		// On each request of this client: parts, completion and batches too. As the last argument of a call it is on that call alone:
		// s3.WithAPIOptions(smithyhttp.AddHeaderValue("Fencing-Token", token))
		APIOptions: []func(*middleware.Stack) error{smithyhttp.AddHeaderValue("Fencing-Token", os.Getenv("TOKEN"))},
	})
	if len(args) < 2 {
		return fmt.Errorf("usage: awssdk upload|download|copy|delete …")
	}
	switch args[0] {
	case "upload":
		f, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer f.Close()
		bucket, key, _ := strings.Cut(args[2], "/")
		_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: f})
		return err
	case "download":
		bucket, key, _ := strings.Cut(args[1], "/")
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		f, err := os.Create(args[2])
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, out.Body); err != nil {
			return err
		}
		return f.Close()
	case "copy":
		bucket, key, _ := strings.Cut(args[2], "/")
		_, err := client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: &bucket, Key: &key, CopySource: &args[1]})
		return err
	case "delete":
		bucket, key, _ := strings.Cut(args[1], "/")
		_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
		return err
	}
	return fmt.Errorf("no command %q", args[0])
}
