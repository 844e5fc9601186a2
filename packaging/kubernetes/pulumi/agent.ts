import { createHash } from "node:crypto";
import * as k8s from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";

const name = "customer-managed-workflow-agent";

export interface PulumiSelfHostedAgentArgs {
    /** Namespace of the agent, which exists. */
    namespace: string;
    /** Namespace of the jobs, which exists. The default is the agent's. */
    jobNamespace?: string;
    /** Name of the agent pool in names and selectors of objects, for several pools in a namespace. */
    pool?: string;
    /** Token of the agent pool. Required, unless oidc is set. */
    accessToken?: pulumi.Input<string>;
    /** Identity of the agents' service account, in place of a token. */
    oidc?: { organization: string; poolID: string };
    /** URL of the server. The default is https://api.pulumi.com. */
    serviceUrl?: string;
    /** Image of the agent. */
    image: string;
    /** Always (the default), IfNotPresent or Never; for the agent's image and for those of jobs. */
    imagePullPolicy?: string;
    /** Number of agents. The default is 3. */
    replicas?: number;
    /** CPUs that each job requests, such as 2 or 500m. */
    numCpus?: string;
    /** Memory that each job requests, in Gi or as a quantity. */
    memQuantity?: string;
    /** Service account of the jobs in their namespace. */
    workerServiceAccount?: pulumi.Input<string>;
    /** Pod that is merged over the pods of jobs, such as a V1Pod of @kubernetes/client-node. */
    podTemplate?: object;
    /** Secret with the key ca-certificates.crt: the authorities that the agent trusts. */
    caCertificateSecretName?: string;
    /** Creates a ServiceMonitor, for the Prometheus Operator. */
    enableServiceMonitor?: boolean;
    /** Creates a NetworkPolicy that keeps jobs from the metadata service of their node. */
    enableNetworkPolicy?: boolean;
    /** Further settings of the agent, by environment variable. */
    settings?: Record<string, string>;
    /** Added to the agent's container and pod. */
    extraEnv?: k8s.types.input.core.v1.EnvVar[];
    extraEnvFrom?: k8s.types.input.core.v1.EnvFromSource[];
    extraVolumes?: k8s.types.input.core.v1.Volume[];
    extraVolumeMounts?: k8s.types.input.core.v1.VolumeMount[];
}

/** Agents that run each job in a pod. */
export class PulumiSelfHostedAgentComponent extends pulumi.ComponentResource {
    readonly deployment: k8s.apps.v1.Deployment;

    constructor(resourceName: string, args: PulumiSelfHostedAgentArgs, opts?: pulumi.ComponentResourceOptions) {
        super("workflow-agent:kubernetes:Agent", resourceName, {}, opts);
        const child = { parent: this };
        const { namespace, oidc } = args;
        if ((oidc === undefined) === (args.accessToken === undefined)) {
            throw new Error("set either accessToken, the token of the agent pool, or oidc");
        }
        // Names and selectors of a pool with a name differ from those of all others in its namespace.
        const suffix = args.pool ? `-${args.pool}` : "";
        const labels = { "app.kubernetes.io/name": name + suffix };
        const jobNamespace = args.jobNamespace ?? namespace;
        const imagePullPolicy = args.imagePullPolicy ?? "Always";

        const configData = {
            PULUMI_AGENT_SERVICE_URL: args.serviceUrl ?? "https://api.pulumi.com",
            PULUMI_AGENT_IMAGE: args.image,
            PULUMI_AGENT_IMAGE_PULL_POLICY: imagePullPolicy,
            "worker-pod.json": `${JSON.stringify(args.podTemplate ?? {})}\n`,
        };
        const settings: Record<string, string> = { PULUMI_AGENT_MAX_CONCURRENT_JOBS: "1", ...args.settings };
        if (args.numCpus) {
            settings.PULUMI_AGENT_NUM_CPUS = args.numCpus;
        }
        if (args.memQuantity) {
            settings.PULUMI_AGENT_MEM_QUANTITY = args.memQuantity;
        }
        const agentConfig = new k8s.core.v1.ConfigMap(
            `agent-config${suffix}`,
            { metadata: { name: `agent-config${suffix}`, namespace, labels }, data: configData },
            child,
        );
        const agentSettings = new k8s.core.v1.ConfigMap(
            `agent-settings${suffix}`,
            { metadata: { name: `agent-settings${suffix}`, namespace, labels }, data: settings },
            child,
        );
        const credentials: k8s.types.input.core.v1.EnvVar[] = [];
        if (oidc) {
            credentials.push(
                { name: "PULUMI_AGENT_OIDC_TOKEN_FILE", value: "/var/run/secrets/workflow-agent/token" },
                { name: "PULUMI_AGENT_ORGANIZATION_NAME", value: oidc.organization },
                { name: "PULUMI_AGENT_RUNNER_POOL_ID", value: oidc.poolID },
            );
        } else {
            const agentSecret = new k8s.core.v1.Secret(
                `agent-secret${suffix}`,
                {
                    metadata: { name: `agent-secret${suffix}`, namespace, labels },
                    type: "Opaque",
                    data: {
                        PULUMI_AGENT_TOKEN: pulumi
                            .secret(args.accessToken ?? "")
                            .apply((token) => Buffer.from(token).toString("base64")),
                    },
                },
                child,
            );
            credentials.push({
                name: "PULUMI_AGENT_TOKEN",
                valueFrom: { secretKeyRef: { name: agentSecret.metadata.name, key: "PULUMI_AGENT_TOKEN" } },
            });
        }
        const account = new k8s.core.v1.ServiceAccount(
            `workflow-agent${suffix}`,
            { metadata: { name: `workflow-agent${suffix}`, namespace, labels }, automountServiceAccountToken: false },
            child,
        );
        const role = new k8s.rbac.v1.Role(
            `workflow-agent${suffix}`,
            {
                metadata: { name: `workflow-agent${suffix}`, namespace: jobNamespace, labels },
                rules: [
                    { apiGroups: [""], resources: ["pods"], verbs: ["create", "get", "list", "watch", "delete"] },
                    { apiGroups: [""], resources: ["pods/log"], verbs: ["get"] },
                    { apiGroups: [""], resources: ["events"], verbs: ["list"] },
                    // The agent writes the Secrets of its jobs, but cannot read any.
                    { apiGroups: [""], resources: ["secrets"], verbs: ["create", "patch", "delete"] },
                ],
            },
            child,
        );
        const binding = new k8s.rbac.v1.RoleBinding(
            `workflow-agent${suffix}`,
            {
                metadata: { name: `workflow-agent${suffix}`, namespace: jobNamespace, labels },
                roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: role.metadata.name },
                subjects: [{ kind: "ServiceAccount", name: account.metadata.name, namespace }],
            },
            child,
        );

        const fromConfig = (key: string) => ({
            name: key,
            valueFrom: { configMapKeyRef: { name: agentConfig.metadata.name, key } },
        });
        const env: k8s.types.input.core.v1.EnvVar[] = [
            { name: "PULUMI_AGENT_DEPLOY_TARGET", value: "kubernetes" },
            { name: "PULUMI_AGENT_KUBERNETES_NAMESPACE", value: jobNamespace },
            // The agent creates this directory, because it accepts only a directory that its user owns.
            { name: "PULUMI_AGENT_STATE_DIRECTORY", value: "/mnt/work/state" },
            fromConfig("PULUMI_AGENT_SERVICE_URL"),
            fromConfig("PULUMI_AGENT_IMAGE"),
            fromConfig("PULUMI_AGENT_IMAGE_PULL_POLICY"),
            ...credentials,
        ];
        if (args.workerServiceAccount) {
            env.push({ name: "PULUMI_AGENT_SERVICE_ACCOUNT_NAME", value: args.workerServiceAccount });
        }
        env.push(...(args.extraEnv ?? []));
        const volumeMounts: k8s.types.input.core.v1.VolumeMount[] = [
            { name: "agent-work", mountPath: "/mnt/work" },
            { name: "agent-tmp", mountPath: "/tmp" },
            { name: "agent-config", mountPath: "/mnt/worker-pod.json", subPath: "worker-pod.json", readOnly: true },
        ];
        const volumes: k8s.types.input.core.v1.Volume[] = [
            { name: "agent-work", emptyDir: {} },
            { name: "agent-tmp", emptyDir: {} },
            {
                name: "agent-config",
                configMap: {
                    name: agentConfig.metadata.name,
                    items: [{ key: "worker-pod.json", path: "worker-pod.json" }],
                },
            },
        ];
        if (args.caCertificateSecretName) {
            const key = "ca-certificates.crt";
            volumeMounts.push({
                name: "agent-ca-certificates",
                mountPath: `/etc/ssl/certs/${key}`,
                subPath: key,
                readOnly: true,
            });
            volumes.push({
                name: "agent-ca-certificates",
                secret: {
                    secretName: args.caCertificateSecretName,
                    defaultMode: 0o644,
                    items: [{ key, path: key }],
                },
            });
        }
        if (oidc) {
            volumeMounts.push({ name: "agent-token", mountPath: "/var/run/secrets/workflow-agent", readOnly: true });
            // The kubelet renews the token. The agent reads the file for each exchange.
            const audience = `urn:pulumi:org:${oidc.organization}`;
            volumes.push({
                name: "agent-token",
                projected: {
                    sources: [{ serviceAccountToken: { audience, expirationSeconds: 3600, path: "token" } }],
                },
            });
        }
        volumeMounts.push(...(args.extraVolumeMounts ?? []));
        volumes.push(...(args.extraVolumes ?? []));
        // Agents read their configuration when they start.
        const checksum = pulumi.unsecret(
            pulumi.output(args.accessToken ?? "").apply((token) => {
                const values = JSON.stringify([configData, settings, token]);
                return createHash("sha256").update(values).digest("hex");
            }),
        );
        this.deployment = new k8s.apps.v1.Deployment(
            `workflow-agent-pool${suffix}`,
            {
                metadata: {
                    name: `workflow-agent-pool${suffix}`,
                    namespace,
                    labels,
                    annotations: { "app.kubernetes.io/name": "pulumi-workflow-agent-pool" },
                },
                spec: {
                    replicas: args.replicas ?? 3,
                    selector: { matchLabels: labels },
                    strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
                    template: {
                        metadata: { labels, annotations: { "checksum/config": checksum } },
                        spec: {
                            serviceAccountName: account.metadata.name,
                            automountServiceAccountToken: true,
                            enableServiceLinks: false,
                            // An agent that must stop finishes its jobs first. After 9 minutes it leaves
                            // them to their runners.
                            terminationGracePeriodSeconds: 600,
                            securityContext: {
                                runAsNonRoot: true,
                                runAsUser: 65532,
                                runAsGroup: 65532,
                                fsGroup: 65532,
                                seccompProfile: { type: "RuntimeDefault" },
                            },
                            containers: [
                                {
                                    name: "agent",
                                    image: args.image,
                                    imagePullPolicy,
                                    env,
                                    envFrom: [
                                        { configMapRef: { name: agentSettings.metadata.name } },
                                        ...(args.extraEnvFrom ?? []),
                                    ],
                                    ports: [{ name: "http", containerPort: 8080 }],
                                    // An agent is unhealthy while its server is unavailable. A restart
                                    // does not help then.
                                    livenessProbe: {
                                        httpGet: { path: "/healthz", port: "http" },
                                        periodSeconds: 30,
                                        timeoutSeconds: 5,
                                        failureThreshold: 60,
                                    },
                                    readinessProbe: {
                                        httpGet: { path: "/readyz", port: "http" },
                                        periodSeconds: 10,
                                        timeoutSeconds: 5,
                                    },
                                    lifecycle: {
                                        preStop: {
                                            exec: { command: [`/usr/bin/${name}`, "drain", "--wait", "--timeout", "540s"] },
                                        },
                                    },
                                    resources: {
                                        requests: { cpu: "50m", memory: "128Mi" },
                                        limits: { memory: "512Mi" },
                                    },
                                    securityContext: {
                                        allowPrivilegeEscalation: false,
                                        readOnlyRootFilesystem: true,
                                        capabilities: { drop: ["ALL"] },
                                    },
                                    volumeMounts,
                                },
                            ],
                            volumes,
                        },
                    },
                },
            },
            // Pods need the binding only when they start jobs, but without it they are not ready.
            { ...child, dependsOn: [binding] },
        );
        new k8s.policy.v1.PodDisruptionBudget(
            `workflow-agent-pool${suffix}`,
            {
                metadata: { name: `workflow-agent-pool${suffix}`, namespace, labels },
                spec: { maxUnavailable: 1, selector: { matchLabels: labels } },
            },
            child,
        );

        const metrics = { ...labels, "app.kubernetes.io/component": "metrics" };
        new k8s.core.v1.Service(
            `deployment-agent-service${suffix}`,
            {
                metadata: {
                    name: `deployment-agent-service${suffix}`,
                    namespace,
                    labels: metrics,
                    annotations: {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": "8080",
                        "prometheus.io/path": "/metrics",
                    },
                },
                spec: {
                    type: "ClusterIP",
                    // Agents that are not ready have metrics too.
                    publishNotReadyAddresses: true,
                    selector: labels,
                    ports: [{ name: "http", port: 8080, targetPort: "http" }],
                },
            },
            child,
        );
        if (args.enableServiceMonitor) {
            new k8s.apiextensions.CustomResource(
                `deployment-agent-servicemonitor${suffix}`,
                {
                    apiVersion: "monitoring.coreos.com/v1",
                    kind: "ServiceMonitor",
                    metadata: { name: `deployment-agent-servicemonitor${suffix}`, namespace, labels: metrics },
                    spec: {
                        selector: { matchLabels: metrics },
                        endpoints: [{ port: "http", path: "/metrics", interval: "30s" }],
                    },
                },
                child,
            );
        }
        if (args.enableNetworkPolicy) {
            new k8s.networking.v1.NetworkPolicy(
                `workflow-runner${suffix}`,
                {
                    metadata: { name: `workflow-runner${suffix}`, namespace: jobNamespace, labels },
                    spec: {
                        podSelector: { matchLabels: { "app.kubernetes.io/name": "workflow-runner" } },
                        policyTypes: ["Ingress", "Egress"],
                        egress: [
                            {
                                to: [
                                    { namespaceSelector: {} },
                                    { ipBlock: { cidr: "0.0.0.0/0", except: ["169.254.169.254/32"] } },
                                    { ipBlock: { cidr: "::/0", except: ["fd00:ec2::254/128"] } },
                                ],
                            },
                        ],
                    },
                },
                child,
            );
        }
        this.registerOutputs({ deployment: this.deployment.metadata.name });
    }
}
