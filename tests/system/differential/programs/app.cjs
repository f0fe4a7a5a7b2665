// Express 4, Express 5, Fastify or Koa, as the first argument says; with `method-override` where it is for Express.
const [name, port] = process.argv.slice(2);
const overriding = (app, lib) => { app.use(require('body-parser').urlencoded({extended: true})); app.use(lib()); app.use(lib('_method')); app.use(lib(q => q.body && q.body._method)); };
if (name === 'express4' || name === 'express5') {
  const app = require(name === 'express4' ? 'express' : 'express5')();
  overriding(app, require('method-override'));
  const ran = (what) => (q, a) => a.set('X-Ran', what).end();
  app.post('/v1/pay', ran('pay')); app.post('/v1/:id/refund', ran('refund')); app.patch('/v1/orders/:id', ran('change'));
  app.listen(port, '127.0.0.1');
} else if (name === 'fastify') {
  const app = require('fastify')({ignoreTrailingSlash: true, ignoreDuplicateSlashes: true, caseSensitive: false, useSemicolonDelimiter: true});
  app.addContentTypeParser('*', (q, body, done) => done(null));
  const ran = (what) => (q, a) => a.header('X-Ran', what).send('');
  app.post('/v1/pay', ran('pay')); app.post('/v1/:id/refund', ran('refund')); app.patch('/v1/orders/:id', ran('change'));
  app.listen({port: +port, host: '127.0.0.1'});
} else {
  const Koa = require('koa'), Router = require('@koa/router'), router = new Router(), ran = (what) => (c) => { c.set('X-Ran', what); c.body = ''; };
  router.post('/v1/pay', ran('pay')).post('/v1/:id/refund', ran('refund')).patch('/v1/orders/:id', ran('change'));
  new Koa().use(router.routes()).listen(port, '127.0.0.1');
}
