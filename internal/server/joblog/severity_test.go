package joblog

import (
	"testing"

	"workflowagent/internal/workflow"
)

// TestSeverity recognizes the forms of the tools that deployments run.
func TestSeverity(t *testing.T) {
	for text, want := range map[string]string{
		"error: the bucket exists":                                       "error",
		"    \x1b[38;5;1merror\x1b[0m: \x1b[0mthe bucket exists":         "error",
		"ERROR: No matching distribution found for pulumi==99":           "error",
		"fatal: could not read Username for 'https://git.example.com'":   "error",
		"fatal error: all goroutines are asleep - deadlock!":             "error",
		"panic: runtime error: index out of range [3]":                   "error",
		"npm ERR! 404 Not Found - GET https://registry.example.com/x":    "error",
		"npm error notarget No matching version found for x@9.":          "error",
		"npm error code ETARGET":                                         "general",
		"index.ts(12,5): error TS2322: Type 'string' is not assignable.": "error",
		"index.ts:12:5 - error TS2322: Type 'string' is not assignable.": "error",
		"/job/Program.cs(10,13): error CS0103: The name 'x' is unknown":  "error",
		"MSBUILD : error MSB1009: Project file does not exist.":          "error",
		"./main.go:10:2: undefined: x":                                   "error",
		"go: example.com/x@v1.2.3: unknown revision v1.2.3":              "error",
		"[ERROR] COMPILATION ERROR :":                                    "error",
		"[ERROR] -> [Help 1]":                                            "general",
		"Traceback (most recent call last):":                             "general",
		"ModuleNotFoundError: No module named 'pulumi_aws'":              "error",
		"botocore.exceptions.ClientError: An error occurred":             "error",
		"AssertionError": "error",
		"TypeError [ERR_INVALID_ARG_TYPE]: The argument must be text":                   "error",
		"Unhandled exception. System.InvalidOperationException: x":                      "error",
		`Exception in thread "main" java.lang.IllegalStateException`:                    "error",
		"error: 1 error occurred:":                                                      "general",
		"error: 2 errors occurred:":                                                     "general",
		"error: update failed":                                                          "general",
		"error: Running program '/job/x' failed with an unhandled exception:":           "general",
		"error: an unhandled error occurred: program exited with non-zero exit code: 1": "general",
		"error: pulumi update exited with code 255":                                     "general",
		"warning: the option is deprecated":                                             "warning",
		"npm warn deprecated glob@7.2.3":                                                "warning",
		"npm WARN deprecated glob@7.2.3":                                                "warning",

		"<yaml>:1:13: this deployment may not open environment acme/app/prod: it": "error",
		"error: opening environment: too many errors":                             "general",

		"":                        "",
		"0 errors, 0 warnings":    "",
		"creating the error page": "",
		"     aws:s3:BucketObject  error.html  created": "",
		"main.go:12: starting":                          "",
		"go: downloading example.com/errors v1.0.0":     "",
		"errors: none":                                  "",
		"learned 3 things":                              "",
		"Type: aws.Error":                               "",
	} {
		s, general := severity([]byte(text))
		got := map[Severity]string{Error: "error", Warning: "warning"}[s]
		if general {
			got = "general"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestFirstErrors finds the line that says why, in what tools print.
func TestFirstErrors(t *testing.T) {
	for want, lines := range map[string][]string{
		"* creating S3 Bucket (logs): BucketAlreadyExists": {
			"  aws:s3:Bucket (logs):", "    error: 1 error occurred:", "    \t* creating S3 Bucket (logs): BucketAlreadyExists", "    error: update failed",
		},
		"ValueError: the zone is unknown": {
			"    error: Program failed with an unhandled exception:", "    Traceback (most recent call last):", `      File "/job/__main__.py", line 3, in <module>`,
			"    ValueError: the zone is unknown", "error: pulumi update exited with code 255",
		},
		"npm error notarget No matching version found for x@9.": {
			"npm error code ETARGET", "npm error notarget No matching version found for x@9.", "npm error A complete log of this run can be found in: /x", "error: dependencies exited with code 1",
		},
		"error: dependencies exited with code 7": {"* a list", "error: dependencies exited with code 7"},
	} {
		v := newViewed(t)
		v.job.Status = workflow.StatusFailed
		v.add(lines...)
		line, found, err := v.logs.FirstError(t.Context(), v.job, 0)
		if !found || err != nil || line.Text != want {
			t.Errorf("got %q, %v, %v; want %q", line.Text, found, err, want)
		}
	}
}
