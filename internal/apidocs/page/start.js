SwaggerUIBundle({ url: "/openapi.json", dom_id: "#ui", deepLinking: true, displayRequestDuration: true, validatorUrl: null });
