package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/workflow"
)

// awsNames are the variables with static AWS credentials.
var awsNames = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}

// profile is the name of the AWS profile whose credentials AWS's libraries renew. A job that selects
// it with AWS_PROFILE gets no static credentials, because the libraries would prefer those.
const (
	profile    = "pulumi-oidc"
	envProfile = "AWS_PROFILE"
	envConfig  = EnvAWSConfig
	fileAWS    = "aws-credentials.json"
	fileConfig = "aws-config"
)

// EnvAWSConfig names AWS's configuration. The keeper sets it to a copy of the job's configuration with
// the profile, so its value replaces the one in the settings.
const EnvAWSConfig = "AWS_CONFIG_FILE"

// maxConfig is the maximum size of the job's AWS configuration in bytes.
const maxConfig = 1 << 20

// stale is the age, and the remaining lifetime, from which a step gets new AWS credentials.
const stale = time.Minute

// awsRole is the role that the job has assumed.
type awsRole struct {
	settings workflow.OIDCAWS
	caller   *caller
	endpoint string
	config   string // path of the configuration with the profile; "": the job uses static credentials

	mu          sync.Mutex
	credentials awsCredentials
	obtained    time.Time
}

// awsCredentials are in the form that AWS's libraries read from a program.
type awsCredentials struct {
	Version         int       `json:"Version"`
	AccessKeyID     string    `json:"AccessKeyId"     xml:"AccessKeyId"`
	SecretAccessKey string    `json:"SecretAccessKey" xml:"SecretAccessKey"`
	SessionToken    string    `json:"SessionToken"    xml:"SessionToken"`
	Expiration      time.Time `json:"Expiration"      xml:"Expiration"`
}

// partition is a part of AWS with its own domain.
type partition struct{ region, domain string }

var partitions = map[string]partition{
	"aws":        {"", "amazonaws.com"},
	"aws-cn":     {"cn-north-1", "amazonaws.com.cn"},
	"aws-us-gov": {"us-gov-west-1", "amazonaws.com"},
	"aws-eusc":   {"eusc-de-east-1", "amazonaws.eu"},
	"aws-iso":    {"us-iso-east-1", "c2s.ic.gov"},
	"aws-iso-b":  {"us-isob-east-1", "sc2s.sgov.gov"},
}

var isRegion = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`).MatchString

// stsEndpoint returns the address of AWS's token service for a role.
func stsEndpoint(vars map[string]string, roleARN string) (string, error) {
	if !strings.EqualFold(vars["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"], "true") {
		for _, name := range []string{"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"} {
			if vars[name] != "" {
				return vars[name], nil
			}
		}
	}
	parts := strings.Split(roleARN, ":")
	if len(parts) < 6 || parts[0] != "arn" {
		return "", fmt.Errorf("operationContext.oidc.aws.roleArn: %q is not the ARN of a role, such as arn:aws:iam::123456789012:role/NAME", roleARN)
	}
	p, ok := partitions[parts[1]]
	if !ok {
		return "", fmt.Errorf("operationContext.oidc.aws.roleArn: the partition %q is unknown; set AWS_ENDPOINT_URL_STS", parts[1])
	}
	region := p.region
	for _, name := range []string{"AWS_DEFAULT_REGION", "AWS_REGION"} {
		if isRegion(vars[name]) {
			region = vars[name]
		}
	}
	if region == "" {
		return "https://sts." + p.domain + "/", nil // the global endpoint
	}
	return "https://sts." + region + "." + p.domain + "/", nil
}

func (k *Keeper) fetchAWS(ctx context.Context, c *caller, env Env, identity token, out io.Writer) error {
	role := &awsRole{settings: *k.opts.Settings.AWS, caller: c}
	var err error
	if role.endpoint, err = stsEndpoint(env.Vars, role.settings.RoleARN); err != nil {
		return err
	}
	if env.Vars[envProfile] == profile {
		if err := k.writeProfile(role, env.Vars); err != nil {
			return err
		}
	}
	if err := k.assume(ctx, role, identity); err != nil {
		return err
	}
	fmt.Fprintf(out, "AWS: assumed the role %s as session %q until %s\n", role.settings.RoleARN, role.settings.SessionName, clock(role.credentials.Expiration))
	k.mu.Lock()
	k.aws = role
	k.mu.Unlock()
	return nil
}

// writeProfile adds the profile to a copy of the job's AWS configuration.
func (k *Keeper) writeProfile(role *awsRole, vars map[string]string) error {
	existing := cmp.Or(vars[envConfig], filepath.Join(vars["HOME"], ".aws", "config"))
	data, err := boundedfile.Read(existing, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the AWS configuration: %w", err)
	}
	section := fmt.Sprintf("\n[profile %s]\ncredential_process = cat %q\n", profile, k.path(fileAWS))
	role.config = k.path(fileConfig)
	return k.writeFile(fileConfig, append(data, section...))
}

// assume obtains credentials of the role.
func (k *Keeper) assume(ctx context.Context, role *awsRole, identity token) error {
	s := role.settings
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {s.RoleARN}, "RoleSessionName": {s.SessionName}, "WebIdentityToken": {identity.text},
	}
	if s.Duration != "" {
		d, err := time.ParseDuration(s.Duration)
		if err != nil {
			return fmt.Errorf("operationContext.oidc.aws.duration: %q: use a form like 30m or 1h", s.Duration)
		}
		form.Set("DurationSeconds", strconv.FormatInt(int64(d/time.Second), 10))
	}
	for i, arn := range s.PolicyARNs {
		form.Set("PolicyArns.member."+strconv.Itoa(i+1)+".arn", arn)
	}
	var got awsCredentials
	err := role.caller.do(ctx, request{
		doing: "AWS: assuming the role " + s.RoleARN,
		url:   role.endpoint, kind: "application/x-www-form-urlencoded", body: form.Encode(),
		transfer: func(status int, body []byte) (err error) {
			got, err = parseSTS(status, body, identity.claims)
			return err
		},
	})
	if err != nil {
		return err
	}
	err = k.opts.Mask(
		redact.Secret{Name: "AWS_ACCESS_KEY_ID", Value: got.AccessKeyID},
		redact.Secret{Name: "AWS_SECRET_ACCESS_KEY", Value: got.SecretAccessKey},
		redact.Secret{Name: "AWS_SESSION_TOKEN", Value: got.SessionToken},
	)
	if err != nil {
		return err
	}
	if role.config != "" {
		data, err := json.Marshal(got)
		if err != nil {
			return fmt.Errorf("encoding the AWS credentials: %w", err)
		}
		if err := k.writeFile(fileAWS, data); err != nil {
			return err
		}
	}
	role.mu.Lock()
	defer role.mu.Unlock()
	role.credentials, role.obtained = got, time.Now()
	return nil
}

// parseSTS reads an answer of AWS's token service.
func parseSTS(status int, body []byte, c claims) (awsCredentials, error) {
	var answer struct {
		Credentials awsCredentials `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
		Error       struct {
			Code    string `xml:"Code"`
			Message string `xml:"Message"`
		} `xml:"Error"`
	}
	_ = xml.Unmarshal(body, &answer) // a malformed answer has neither member
	got := answer.Credentials
	if status == 200 && got.AccessKeyID != "" && got.SecretAccessKey != "" && got.SessionToken != "" && !got.Expiration.IsZero() {
		got.Version = 1
		return got, nil
	}
	r := &refusal{status: status, host: "AWS", code: answer.Error.Code, text: answer.Error.Message}
	r.advice, r.again = advise(awsRules, r.code, r.text, c)
	return awsCredentials{}, r
}

// vars returns the variables through which a step gets the credentials.
func (r *awsRole) vars() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config != "" {
		return map[string]string{envConfig: r.config}
	}
	return map[string]string{
		"AWS_ACCESS_KEY_ID": r.credentials.AccessKeyID, "AWS_SECRET_ACCESS_KEY": r.credentials.SecretAccessKey,
		"AWS_SESSION_TOKEN": r.credentials.SessionToken,
	}
}

func (r *awsRole) state() (obtained, expires time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.obtained, r.credentials.Expiration
}

// refreshAWS gives a step that is about to start credentials with their full lifetime.
func (k *Keeper) refreshAWS(ctx context.Context, role *awsRole) {
	obtained, expires := role.state()
	if time.Since(obtained) < stale && time.Until(expires) > stale {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := k.reassume(ctx, role); err != nil {
		k.opts.Notify(fmt.Sprintf("warning: the AWS credentials could not be renewed and expire at %s: %v", clock(expires), err))
	}
}

func (k *Keeper) reassume(ctx context.Context, role *awsRole) error {
	identity, err := k.freshToken(ctx)
	if err != nil {
		return err
	}
	return k.assume(ctx, role, identity)
}

// setAlarm makes the log explain why AWS refuses a long step's requests.
func (k *Keeper) setAlarm(role *awsRole) {
	if role.config != "" {
		return // the libraries renew these credentials
	}
	_, expires := role.state()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alarm != nil {
		k.alarm.Stop()
	}
	k.alarm = time.AfterFunc(time.Until(expires), func() {
		k.opts.Notify(fmt.Sprintf("warning: the AWS credentials of this step expired at %s; for longer steps, increase operationContext.oidc.aws.duration, or set the environment variable %s to %s", clock(expires), envProfile, profile))
	})
}

// keepAWS renews the credentials of the profile, of which half of their lifetime always remains.
func (k *Keeper) keepAWS(ctx context.Context) {
	for failures := 0; ; {
		k.mu.Lock()
		role := k.aws
		k.mu.Unlock()
		pause := stale
		if role != nil && role.config != "" {
			obtained, expires := role.state()
			pause = time.Until(obtained.Add(expires.Sub(obtained) / 2))
		}
		if pause > 0 {
			pause = min(pause, stale)
		} else if err := k.reassume(ctx, role); err != nil && ctx.Err() == nil {
			if failures == 0 {
				k.opts.Notify("warning: renewing the AWS credentials failed and is repeated: " + err.Error())
			}
			pause = renewals.Pause(failures, err)
			failures++
		} else {
			failures, pause = 0, stale // even if this host's clock says that the new credentials have expired
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}
