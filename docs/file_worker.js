// Browsers refuse to start a Worker from a page that was opened as a file. There the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.scope.importScripts = () => {};
      const script = this.scope.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      this.scope.document.head.append(script);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data }));
    }
  };
}
