package redact

import (
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// benchSecrets returns 20 secrets that are typical of a deployment: tokens, passwords and a key.
func benchSecrets() []Secret {
	rnd := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	secrets := []Secret{{"key", testKey}, {"region", "us-east-1"}, {"short", "pass/w"}}
	for i := len(secrets); i < 20; i++ {
		secrets = append(secrets, Secret{fmt.Sprint("token", i), random(6 + 2*i)})
	}
	return secrets
}

// benchText returns deployment output in lines of 100 bytes, where one line in hits contains a
// secret.
func benchText(secrets []Secret, hits int) []byte {
	var text strings.Builder
	for i := 0; text.Len() < 4<<20; i++ {
		line := fmt.Sprintf("@ updating.... %06d  +  aws:s3:Bucket my-bucket-%d creating (%ds) [diff: ~tags,arn:aws:s3:::x]", i, i*7919, i%60)
		if hits > 0 && i%hits == 0 {
			line = line[:40] + secrets[4+i/hits%16].Value
		}
		fmt.Fprintf(&text, "%-99.99s\n", line)
	}
	return []byte(text.String())
}

func BenchmarkWriter(b *testing.B) {
	secrets := benchSecrets()
	set := New(secrets...)
	for _, hits := range []int{0, 100, 1} {
		text := benchText(secrets, hits)
		for _, size := range []int{100, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("hits=1in%d/write=%d", hits, size), func(b *testing.B) {
				w := set.Writer(io.Discard)
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					for rest := text; len(rest) > 0; {
						n := min(size, len(rest))
						if _, err := w.Write(rest[:n]); err != nil {
							b.Fatal(err)
						}
						rest = rest[n:]
					}
				}
			})
		}
	}
}

func BenchmarkNew(b *testing.B) {
	secrets := benchSecrets()
	for b.Loop() {
		New(secrets...)
	}
}
