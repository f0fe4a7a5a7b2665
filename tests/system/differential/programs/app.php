<?php
// PHP's own server with a front controller, and a method override as Symfony and Laravel read it.
$path = rtrim($_SERVER['PATH_INFO'] ?? parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '/', '/');
$path = rawurldecode($_SERVER['HTTP_X_ORIGINAL_URL'] ?? $_SERVER['HTTP_X_REWRITE_URL'] ?? $path);
$method = $_SERVER['REQUEST_METHOD'];
if ($method === 'POST') {
    $json = json_decode(file_get_contents('php://input'), true);
    $asked = $_SERVER['HTTP_X_HTTP_METHOD_OVERRIDE'] ?? $_POST['_method'] ?? $_GET['_method'] ?? (is_array($json) ? $json['_method'] ?? null : null);
    $method = is_string($asked) ? strtoupper($asked) : $method;
}
$ran = '';
if ($method === 'POST' && $path === '/v1/pay') $ran = 'pay';
if ($method === 'POST' && preg_match('#^/v1/[^/]+/refund$#', $path)) $ran = 'refund';
if ($method === 'PATCH' && preg_match('#^/v1/orders/[^/]+$#', $path)) $ran = 'change';
header("X-Ran: $ran");
