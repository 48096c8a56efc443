{{- define "outbox.secret" -}}
{{ default (printf "%s-config" .Release.Name) .Values.existingSecret }}
{{- end }}
{{- define "outbox.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- /* A number of a values file is a float, which quote would print as 1e+06. */}}
{{- define "outbox.text" -}}
{{ if kindIs "string" . }}{{ quote . }}{{ else }}{{ toJson . | quote }}{{ end }}
{{- end }}
{{- define "outbox.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "outbox.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
{{- /* Where pods run and what their images need, at the depth of a pod's specification. */}}
{{- define "outbox.scheduling" }}
{{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
{{- define "outbox.migrate" }}
spec:
  backoffLimit: 20
  ttlSecondsAfterFinished: 86400
  template:
    metadata:
      labels:
        app.kubernetes.io/part-of: {{ .Release.Name }}
        app.kubernetes.io/component: migrate
    spec:
      serviceAccountName: {{ .Release.Name }}
      automountServiceAccountToken: false
      restartPolicy: OnFailure
      {{- include "outbox.podSecurity" . | nindent 6 }}
      {{- include "outbox.scheduling" . }}
      containers:
        - name: migrate
          image: {{ include "outbox.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args: [schema, migrate, --config, /etc/outbox/outbox.yaml{{ if .Values.components.orders.enabled }}, --components, "schedule,subscriptions,orders"{{ end }}]
          {{- include "outbox.containerSecurity" . | nindent 10 }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
          volumeMounts:
            - {name: config, mountPath: /etc/outbox, readOnly: true}
            {{- with .Values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: config
          secret: {secretName: {{ include "outbox.secret" . }}}
        {{- with .Values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
